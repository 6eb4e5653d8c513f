// A library with NVSHMEM's names and no devices: processing elements are processes, whose heaps lie in one file that all of
// them map. Allocation is collective, with a barrier inside that waits for good, as NVSHMEM's does.
//
// Files in the library's own folder decide. `answers` holds lines `NAME: PE VALUE`: what the function NAME does on a PE, or
// on all PEs (`*`). For functions that return a code VALUE is the code. For nvshmem_malloc 1 is a null address, and for
// nvshmem_ptr VALUE is the PE that is not reached. `kill NAME` or `stop NAME` in place of NAME kills or stops the process
// that makes the call. Every call is a line of `calls`: the PE and the name.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

namespace {

struct UniqueId {
  int version;
  char internal[124];
};

struct UniqueIdArgs {
  int version;
  const UniqueId* id;
  int rank;
  int ranks;
};

struct InitArgs {
  int version;
  UniqueIdArgs unique_id;
  char content[96];
};

struct InitAttr {
  int version;
  void* mpi_comm;
  InitArgs args;
};

template <typename T>
bool is_first(int version) {
  return version == (1 << 16) + static_cast<int>(sizeof(T));
}

/// The start of the file.
struct Head {
  std::atomic<int> arrived;
  std::atomic<int> round;
};

constexpr size_t kHeadBytes = 4096;
constexpr size_t kHeapBytes = size_t{64} << 20;
constexpr size_t kAlign = 512;

constexpr int kInitialised = 2;

int status = 0;
int pe = -1;
int pes = 0;
char* file = nullptr;

/// The blocks of the own heap, by offset: their bytes.
std::map<size_t, size_t> blocks;
/// Memory of the caller that was mapped once more.
std::map<char*, size_t> mapped;

std::string beside(const std::string& name) {
  Dl_info found{};
  dladdr(&pe, &found);
  const std::string path(found.dli_fname);
  return path.substr(0, path.rfind('/') + 1) + name;
}

/// Whether a line of `answers` is about `name` on `at`; returns the last such line's value.
bool answer(const std::string& name, int at, int& value) {
  std::FILE* lines = std::fopen(beside("answers").c_str(), "r");
  if (lines == nullptr) return false;
  char line[256];
  bool found = false;
  while (std::fgets(line, sizeof line, lines) != nullptr) {
    char named[128];
    char where[16];
    int number = 0;
    if (std::sscanf(line, "%127[^:]: %15s %d", named, where, &number) != 3 || name != named) continue;
    if (std::strcmp(where, "*") != 0 && std::atoi(where) != at) continue;
    value = number;
    found = true;
  }
  std::fclose(lines);
  return found;
}

int code(const std::string& name, int otherwise = 0) {
  answer(name, pe, otherwise);
  return otherwise;
}

void called(const std::string& name) {
  const std::string line = std::to_string(pe) + " " + name + "\n";
  const int calls = open(beside("calls").c_str(), O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (calls >= 0) {
    // One write, so that lines of several processes do not mix.
    if (write(calls, line.data(), line.size()) < 0) std::abort();
    close(calls);
  }
  int value = 0;
  if (answer("kill " + name, pe, value)) raise(SIGKILL);
  if (answer("stop " + name, pe, value)) raise(SIGSTOP);
}

Head* head() { return reinterpret_cast<Head*>(file); }
char* heap(int of) { return file + kHeadBytes + kHeapBytes * static_cast<size_t>(of); }

/// Waits for all, for good: a lost processing element is never noticed.
void barrier() {
  const int round = head()->round.load();
  if (head()->arrived.fetch_add(1) + 1 == pes) {
    head()->arrived.store(0);
    head()->round.store(round + 1);
    return;
  }
  while (head()->round.load() == round) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

bool in_heap(const void* address) {
  const char* at = static_cast<const char*>(address);
  return status >= kInitialised && at >= heap(pe) && at < heap(pe) + kHeapBytes;
}

}  // namespace

extern "C" {

void nvshmemx_vendor_get_version_info(int* major, int* minor, int* patch) {
  *major = code("major", 3);
  *minor = code("minor", 4);
  *patch = code("patch", 5);
}

int nvshmemx_init_status() { return status; }

int nvshmemx_get_uniqueid(UniqueId* id) {
  called(__func__);
  if (!is_first<UniqueId>(id->version)) return 7;
  std::snprintf(id->internal, sizeof id->internal, "world-%d-%lld", static_cast<int>(getpid()),
                static_cast<long long>(std::chrono::steady_clock::now().time_since_epoch().count()));
  answer("id version", pe, id->version);
  return code(__func__);
}

int nvshmemx_set_attr_uniqueid_args(const int rank, const int ranks, const UniqueId* id, InitAttr* attr) {
  if (!is_first<InitAttr>(attr->version) || !is_first<InitArgs>(attr->args.version) ||
      !is_first<UniqueIdArgs>(attr->args.unique_id.version)) {
    return 7;
  }
  attr->args.unique_id.id = id;
  attr->args.unique_id.rank = rank;
  attr->args.unique_id.ranks = ranks;
  return 0;
}

int nvshmemx_hostlib_init_attr(unsigned flags, InitAttr* attr) {
  const UniqueIdArgs& args = attr->args.unique_id;
  pe = args.rank;
  pes = args.ranks;
  called(__func__);
  if (const int failed = code(__func__)) return failed;
  if (flags != 1u << 3 || status != 0) return 7;
  const std::string path = beside(args.id->internal);
  const size_t bytes = kHeadBytes + kHeapBytes * static_cast<size_t>(pes);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return 7;
  file = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  close(fd);
  if (file == MAP_FAILED) return 7;
  barrier();
  if (pe == 0) unlink(path.c_str());
  status = kInitialised;
  return 0;
}

void nvshmemx_hostlib_finalize() {
  called(__func__);
  barrier();
  munmap(file, kHeadBytes + kHeapBytes * static_cast<size_t>(pes));
  status = 0;
  blocks.clear();
}

int nvshmem_my_pe() { return pe; }
int nvshmem_n_pes() { return pes; }

void* nvshmem_malloc(size_t size) {
  called(__func__);
  barrier();
  if (size == 0 || code(__func__) != 0) return nullptr;
  const size_t bytes = (size + kAlign - 1) / kAlign * kAlign;
  size_t offset = 0;
  for (const auto& [start, length] : blocks) {
    if (start - offset >= bytes) break;
    offset = start + length;
  }
  if (bytes < size || bytes > kHeapBytes - offset) return nullptr;
  blocks[offset] = bytes;
  return heap(pe) + offset;
}

void nvshmem_free(void* address) {
  called(__func__);
  barrier();
  if (!in_heap(address) || blocks.erase(static_cast<size_t>(static_cast<char*>(address) - heap(pe))) != 1) {
    std::fprintf(stderr, "nvshmem_free of %p, which is no block\n", address);
    std::exit(255);
  }
}

void* nvshmem_ptr(const void* address, int of) {
  int cut = -1;
  if (!in_heap(address) || of < 0 || of >= pes) return nullptr;
  if (answer(__func__, pe, cut) && cut == of) return nullptr;
  return heap(of) + (static_cast<const char*>(address) - heap(pe));
}

void* nvshmemx_buffer_register_symmetric(void* address, size_t bytes, int) {
  called(__func__);
  barrier();
  const char* const set = std::getenv("NVSHMEM_CUMEM_GRANULARITY");
  const std::string unit = set == nullptr ? "524288K" : set;
  const bool whole = bytes % (std::stoull(unit) << (unit.back() == 'K' ? 10 : 0)) == 0;
  if (!whole || code(__func__) != 0) {
    // Memory that exists only in part cannot be mapped, and then NVSHMEM unmaps its heap.
    munmap(file, kHeadBytes + kHeapBytes * static_cast<size_t>(pes));
    return nullptr;
  }
  // The same pages at a second address.
  void* again = mremap(address, 0, bytes, MREMAP_MAYMOVE);
  if (again == MAP_FAILED) return nullptr;
  mapped[static_cast<char*>(again)] = bytes;
  return again;
}

int nvshmemx_buffer_unregister_symmetric(void* address, size_t bytes) {
  called(__func__);
  barrier();
  const auto found = mapped.find(static_cast<char*>(address));
  if (found == mapped.end() || found->second != bytes) return 7;
  munmap(address, bytes);
  mapped.erase(found);
  return code(__func__);
}

}  // extern "C"
