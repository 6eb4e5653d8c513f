// A library with NCCL's names and no devices, for tests of the code that calls NCCL. Files in its own folder control
// it: `answers` holds a line `NAME NUMBER` for each function that shall return something else than success (0), and may
// change between calls. Every call is written as a line of `calls`, which also records whether a group was open.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

struct UniqueId {
  char internal[128];
};

struct Team {
  int ranks;
  int rank;
  int stride;
};

struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

int communicator;

/// A rank of a communicator.
struct Communicator {
  std::string name;
  int rank;
  int ranks;
  bool blocks;
  std::atomic<int> splits{0};
  std::atomic<bool> in_progress{false};
};

/// The choice of a rank at a split.
struct Choice {
  int color;
  int key;
  int rank;
};

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

std::vector<Choice> choices(const std::string& path) {
  std::vector<Choice> all;
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return all;
  Choice choice{};
  while (std::fscanf(file, "%d %d %d;", &choice.color, &choice.key, &choice.rank) == 3) all.push_back(choice);
  std::fclose(file);
  return all;
}

/// Waits for the choices of all ranks, which may be other processes, in a file of the split.
int split(const Communicator& parent, const std::string& name, Choice own, void** part) {
  const std::string path = beside(name.c_str());
  std::FILE* file = std::fopen(path.c_str(), "a");
  std::fprintf(file, "%d %d %d;\n", own.color, own.key, own.rank);
  std::fclose(file);
  std::vector<Choice> all;
  for (int wait = 0; static_cast<int>(all.size()) < parent.ranks; ++wait) {
    if (wait == 10'000) return 6;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    all = choices(path);
  }
  if (own.color < 0) return 0;
  const auto other = [&](const Choice& choice) { return choice.color != own.color; };
  all.erase(std::remove_if(all.begin(), all.end(), other), all.end());
  const auto before = [&](const Choice& choice) { return choice.key < own.key || (choice.key == own.key && choice.rank < own.rank); };
  const auto rank = std::count_if(all.begin(), all.end(), before);
  const std::string color = std::to_string(own.color);
  *part = new Communicator{name + "-" + color, static_cast<int>(rank), static_cast<int>(all.size()), parent.blocks};
  return 0;
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
  *comm = new Communicator{"split", rank, ranks, true};
  return called(__func__, " " + std::to_string(rank) + " of " + std::to_string(ranks) + " by " + id.internal[0]);
}

int ncclCommInitRankConfig(void** comm, int ranks, UniqueId id, int rank, const Config* config) {
  const bool blocks = config == nullptr || config->blocking != 0;
  *comm = answer("no_handle") != 0 ? nullptr : new Communicator{"split", rank, ranks, blocks};
  const bool fits = config != nullptr && config->size == sizeof(Config) && config->magic == 0xcafebeef && config->version == 21400;
  return called(__func__, " " + std::to_string(rank) + " of " + std::to_string(ranks) + " by " + id.internal[0] +
                              (config == nullptr               ? ", without a config"
                               : fits && config->blocking == 0 ? ", not blocking"
                                                               : ", a config of " + std::to_string(config->size) + " bytes"));
}

// The state of background work, which is queried too often to be logged.
int ncclCommGetAsyncError(void* comm, int* state) {
  const bool splits = static_cast<Communicator*>(comm)->in_progress;
  *state = answer("state", splits || (finalizing && answer("graphs") != 0) ? kInProgress : 0);
  return answer(__func__);
}

int ncclCommCount(void* comm, int* count) {
  *count = answer("count", static_cast<Communicator*>(comm)->ranks);
  return 0;
}
int ncclCommUserRank(void* comm, int* rank) {
  *rank = static_cast<Communicator*>(comm)->rank;
  return 0;
}
int ncclCommCuDevice(void*, int* device) {
  *device = 0;
  return 0;
}

/// Returns when all ranks have called, or at once and in progress for a communicator that does not block.
int ncclCommSplit(void* comm, int color, int key, void** part, const Config*) {
  auto* parent = static_cast<Communicator*>(comm);
  if (const int code = called(__func__, " " + std::to_string(color) + " by " + std::to_string(key))) return code;
  const std::string name = parent->name + "-" + std::to_string(parent->splits++);
  const Choice own{color, key, parent->rank};
  *part = nullptr;
  if (parent->blocks) return split(*parent, name, own, part);
  parent->in_progress = true;
  std::thread([parent, name, own, part] {
    split(*parent, name, own, part);
    parent->in_progress = false;
  }).detach();
  return kInProgress;
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
int ncclCommInitAll(void** comms, int ranks, const int*) {
  for (int rank = 0; rank < ranks; ++rank) comms[rank] = new Communicator{"split", rank, ranks, true};
  return called(__func__, " of " + std::to_string(ranks));
}
Team ncclTeamWorld(void* comm) {
  const auto* of = static_cast<Communicator*>(comm);
  return {of->ranks, of->rank, 1};
}
int ncclLLA2ACalcSlots(int bytes, int ranks) { return bytes * ranks; }
int ncclGroupSimulateEnd(void*) {
  --groups;
  return called(__func__);
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
