// A library with NCCL's names and no devices, for tests of the code that calls NCCL. Files in its own folder control
// it: `answers` holds a line `NAME NUMBER` for each function that shall return something else than success (0), and may
// change between calls. Every call is written as a line of `calls`, which also records whether a group was open.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

struct UniqueId {
  char internal[128];
};

struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

int communicator;

/// ncclInProgress.
constexpr int kInProgress = 7;

/// Where the handle of a window that is being registered goes.
void** window = nullptr;

/// Whether the communicator was asked to end in good order.
std::atomic<bool> finalizing{false};

/// Groups that are open.
std::atomic<int> groups{0};

std::string beside(const char* name) {
  Dl_info found{};
  dladdr(&communicator, &found);
  const std::string path(found.dli_fname);
  return path.substr(0, path.rfind('/') + 1) + name;
}

int answer(const char* name, int otherwise = 0) {
  std::FILE* file = std::fopen(beside("answers").c_str(), "r");
  if (file == nullptr) return otherwise;
  char found[64];
  int number = 0;
  while (std::fscanf(file, "%63s %d", found, &number) == 2) {
    if (std::strcmp(found, name) == 0) otherwise = number;
  }
  std::fclose(file);
  return otherwise;
}

int called(const char* name, const std::string& with = "") {
  if (std::FILE* file = std::fopen(beside("calls").c_str(), "a")) {
    std::fprintf(file, "%s%s%s\n", name, with.c_str(), groups > 0 ? " in a group" : "");
    std::fclose(file);
  }
  return answer(name);
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = answer("version", 22809);
  return 0;
}

int ncclGetUniqueId(UniqueId* id) {
  std::memset(id->internal, 'i', sizeof(id->internal));
  return called(__func__);
}

const char* ncclGetErrorString(int code) { return code == 6 ? "remote process exited" : "some other error"; }

const char* ncclGetLastError(void*) { return "what came last\n"; }

int ncclCommInitRank(void** comm, int ranks, UniqueId id, int rank) {
  *comm = &communicator;
  return called(__func__, " " + std::to_string(rank) + " of " + std::to_string(ranks) + " by " + id.internal[0]);
}

int ncclCommInitRankConfig(void** comm, int ranks, UniqueId id, int rank, const Config* config) {
  *comm = answer("no_handle") != 0 ? nullptr : &communicator;
  const bool fits = config != nullptr && config->size == sizeof(Config) && config->magic == 0xcafebeef && config->version == 21400;
  return called(__func__, " " + std::to_string(rank) + " of " + std::to_string(ranks) + " by " + id.internal[0] +
                              (config == nullptr               ? ", without a config"
                               : fits && config->blocking == 0 ? ", not blocking"
                                                               : ", of another kind"));
}

// The state of background work, which is queried too often to be logged.
int ncclCommGetAsyncError(void*, int* state) {
  *state = answer("state", finalizing && answer("graphs") != 0 ? kInProgress : 0);
  return answer(__func__);
}

#ifndef WITHOUT_FINALIZE
/// Is done when no graph holds an operation of the communicator, as NCCL's is: when the answer of `graphs` is 0.
int ncclCommFinalize(void*) {
  const int code = called(__func__);
  finalizing = true;
  return answer("graphs") != 0 ? kInProgress : code;
}
#endif
int ncclMemAlloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return called(__func__);
}
int ncclMemFree(void* memory) {
  std::free(memory);
  return called(__func__);
}
/// Writes the handle when it is done: at once, or, in progress, late in an abort.
int ncclCommWindowRegister(void*, void*, size_t, void** handle, int) {
  const int code = called(__func__);
  if (code == 0) *handle = &communicator;
  if (code == kInProgress) window = handle;
  return code;
}
int ncclCommWindowDeregister(void*, void*) { return called(__func__); }
int ncclCommDestroy(void*) { return called(__func__); }
/// Returns when no graph holds an operation of the communicator.
int ncclCommAbort(void*) {
  const int code = called(__func__);
  if (window != nullptr) *window = &communicator;
  if (answer("graphs") == 0) return code;
  while (answer("graphs") != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  called("graphs are gone");
  return code;
}
int ncclGroupStart() {
  const int code = called(__func__);
  if (code == 0) ++groups;
  return code;
}
int ncclGroupEnd() {
  --groups;
  return called(__func__);
}
int ncclAllReduce(const void*, void*, size_t, int, int, void*, void*) { return called(__func__); }
int ncclReduceScatter(const void*, void*, size_t, int, int, void*, void*) { return called(__func__); }
int ncclAllGather(const void*, void*, size_t, int, void*, void*) { return called(__func__); }
int ncclReduce(const void*, void*, size_t, int, int, int, void*, void*) { return called(__func__); }
int ncclBroadcast(const void*, void*, size_t, int, int, void*, void*) { return called(__func__); }
int ncclSend(const void*, size_t, int, int, void*, void*) { return called(__func__); }
int ncclRecv(void*, size_t, int, int, void*, void*) { return called(__func__); }

}  // extern "C"
