// Where memory runs short, calls are wrong, streams go and ranks die. Each rank prints `rank R ok`.
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "program.hpp"

namespace {

struct Rank {
  Bootstrap& bootstrap;
  int rank;
  int ranks;
};

/// Ends the process without a word to the others.
[[noreturn]] void end(const Rank& self) {
  std::printf("rank %d ok\n", self.rank);
  std::fflush(stdout);
  std::_Exit(0);
}

symmetra::Config small() {
  symmetra::Config config;
  config.heap_bytes = 1 << 20;
  return config;
}

/// Every rank learns why no such memory can be allocated, and the next call works.
void sizes_that_cannot_be(const Rank& self) {
  SymmMemManager manager(self.bootstrap, small());
  for (const size_t size : {size_t{1} << 44, size_t{1} << 45, SIZE_MAX}) {
    REFUSED(kOutOfMemory, "Malloc: the size is " + std::to_string(size) + " bytes", manager.Malloc(size));
  }
  if (self.ranks > 1) {
    for (const size_t other : {size_t{2} << 20, size_t{1} << 45, SIZE_MAX}) {
      REFUSED(kMismatch, "", manager.Malloc(self.rank == 1 ? other : 64));
    }
  }
  SymmMemObj* nothing = manager.Malloc(0);
  SymmMemObj* some = manager.Malloc(5);
  CHECK(nothing->size == 0 && some->size == 5);
  manager.Free(nothing);
  manager.Free(some);
}

/// A bootstrap of other ranks than the manager's.
void another_bootstrap(const Rank& self) {
  struct Other : Bootstrap {
    Other(int number, int world) : rank(number), ranks(world) {}
    void Initialize() override {}
    void Finalize() override {}
    int GetWorldSize() const override { return ranks; }
    int GetRank() const override { return rank; }
    void Allgather(const void*, void*, size_t) override {}
    void Barrier() override {}
    int rank, ranks;
  };
  SymmMemManager manager(self.bootstrap, small());
  Other larger(self.rank, self.ranks + 1), next((self.rank + 1) % self.ranks, self.ranks);
  REFUSED(kInvalidArgument, "of " + std::to_string(self.ranks + 1) + ", but the manager's is", AllReduce(larger, manager));
  if (self.ranks > 1) REFUSED(kInvalidArgument, "the bootstrap is rank", AllReduce(next, manager));
}

/// Calls until one call fails. The caller synchronises first, so that a rank only ends after all have begun their
/// calls.
template <class Execute>
void until_one_fails(AllReduce& all_reduce, Execute execute) {
  for (;;) {
    all_reduce.Synchronize();
    execute();
  }
}

/// A rank that an exception ends while others wait for it in Execute.
void lost(const Rank& self) {
  if (self.ranks == 1) return;
  struct Own {};
  const auto start = std::chrono::steady_clock::now();
  try {
    SymmMemManager manager(self.bootstrap, small());
    AllReduce all_reduce(self.bootstrap, manager);
    SymmMemObj* object = manager.Malloc(64);
    Array<float> values(8);
    const auto execute = [&] { all_reduce.Execute(values.data(), values.data(), 8, HIP_R_32F, ReduceOp::SUM); };
    execute();
    if (self.rank == 1) {
      all_reduce.Synchronize();
      // The manager is destroyed while this unwinds, with an object and without waiting for another rank.
      throw Own();
    }
    REFUSED(kPeerLost, "rank 1", until_one_fails(all_reduce, execute));
    REFUSED(kPeerLost, "rank 1", execute());
    REFUSED(kPeerLost, "rank 1", manager.Malloc(64));
    manager.Free(object);
    // Otherwise another survivor may be named as the lost rank.
    self.bootstrap.Barrier();
  } catch (const Own&) {
    self.bootstrap.Barrier();
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

/// A rank whose process ends while others wait for it.
void killed(const Rank& self) {
  SymmMemManager manager(self.bootstrap, small());
  AllReduce all_reduce(self.bootstrap, manager);
  Array<float> values(8);
  const auto execute = [&] { all_reduce.Execute(values.data(), values.data(), 8, HIP_R_32F, ReduceOp::SUM); };
  execute();
  if (self.rank == self.ranks - 1) {
    all_reduce.Synchronize();
    end(self);
  }
  const auto start = std::chrono::steady_clock::now();
  // Perhaps a survivor that has left since.
  REFUSED(kPeerLost, "rank ", until_one_fails(all_reduce, execute));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

#if P2P_ALLREDUCE_NUMBER(P2P_ALLREDUCE_DEVICE) == P2P_ALLREDUCE_ON_HOST

}  // namespace

/// Makes the next allocation of this thread in C++ fail. Not inlined: compilers would take the pairs for mismatched.
static thread_local bool next_new_fails = false;
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* memory = next_new_fails ? nullptr : std::malloc(bytes);
  next_new_fails = false;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

/// The resources of this process: threads, bytes of addresses, and the bytes of shared memory among these.
struct Footprint {
  size_t threads = 0;
  size_t addressed_bytes = 0;
  size_t shared_bytes = 0;

  static Footprint now() {
    Footprint found;
    std::ifstream status("/proc/self/status"), maps("/proc/self/maps");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("Threads:", 0) == 0) found.threads = std::stoul(line.substr(8));
      if (line.rfind("VmSize:", 0) == 0) found.addressed_bytes = std::stoul(line.substr(7)) << 10;
    }
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:") == std::string::npos) continue;
      size_t dash = 0;
      const unsigned long long start = std::stoull(line, &dash, 16);
      found.shared_bytes += std::stoull(line.substr(dash + 1), nullptr, 16) - start;
    }
    return found;
  }
};

/// Many objects that fit no existing heap need few groups, and little memory in addition to their own bytes.
void growth(const Rank& self) {
  constexpr size_t kObjects = 24, kBytes = 1 << 20;
  SymmMemManager manager(self.bootstrap, small());
  const Footprint before = Footprint::now();
  std::vector<SymmMemObj*> objects;
  for (size_t i = 0; i < kObjects; ++i) {
    objects.push_back(manager.Malloc(kBytes));
    std::vector<uint8_t> mark(kBytes, static_cast<uint8_t>(16 * static_cast<size_t>(self.rank) + i));
    upload(objects[i]->Get(), mark.data(), kBytes);
  }
  const Footprint after = Footprint::now();
  // Heaps of 2, 3, 6, 12 and 24 MiB; two threads a group, and one for its copies.
  CHECK(after.threads - before.threads <= 15);
  const size_t most_bytes = static_cast<size_t>(self.ranks) * ((47 << 20) + (10 << 20));
  CHECK(after.shared_bytes - before.shared_bytes <= most_bytes);
  self.bootstrap.Barrier();
  for (size_t i = 0; i < kObjects; ++i) {
    for (int peer = 0; peer < self.ranks; ++peer) {
      std::vector<uint8_t> found(kBytes);
      HIP(hipMemcpy(found.data(), objects[i]->GetPeer(peer), kBytes, hipMemcpyDeviceToHost));
      CHECK(found == std::vector<uint8_t>(kBytes, static_cast<uint8_t>(16 * static_cast<size_t>(peer) + i)));
    }
  }
  self.bootstrap.Barrier();
  for (SymmMemObj* object : objects) manager.Free(object);
  // Freed memory is used again.
  for (size_t i = 0; i < kObjects; ++i) manager.Free(manager.Malloc(kBytes));
  CHECK(Footprint::now().shared_bytes == after.shared_bytes);
}

/// A rank that cannot open its device notifies the others.
void no_device(const Rank& self) {
  // One that was not used before.
  HIP(hipSetDevice(15));
  if (self.rank == self.ranks - 1) {
    const symmetra::Config config = small();
    bool thrown = false;
    next_new_fails = true;
    try {
      SymmMemManager manager(self.bootstrap, config);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    CHECK(thrown && !next_new_fails);
  } else {
    REFUSED(kPeer, "rank " + std::to_string(self.ranks - 1), SymmMemManager manager(self.bootstrap, small()));
  }
  HIP(hipSetDevice(self.rank));
}

/// Where a device has no room for a heap of that size, there is one for the object alone.
void short_of_memory(const Rank& self) {
  SymmMemManager manager(self.bootstrap, small());
  SymmMemObj* large = manager.Malloc(300 << 20);
  rlimit before{};
  CHECK(getrlimit(RLIMIT_AS, &before) == 0);
  // Rank 0 alone is short.
  rlimit tight = before;
  if (self.rank == 0) tight.rlim_cur = Footprint::now().addressed_bytes + (200 << 20);
  CHECK(setrlimit(RLIMIT_AS, &tight) == 0);
  SymmMemObj* more = manager.Malloc(2 << 20);
  CHECK(more->size == 2 << 20);
  try {
    manager.Malloc(300 << 20);
    fail(__LINE__, "there is no room");
  } catch (const symmetra::Error& error) {
    // Rank 0 reports the reason and has left that group: a rank that reads the report late may only see that rank 0 has
    // left.
    const bool told = error.kind() == symmetra::ErrorKind::kPeer || error.kind() == symmetra::ErrorKind::kPeerLost;
    CHECK(self.rank == 0 ? error.kind() == symmetra::ErrorKind::kOutOfMemory : told && error.rank() == 0);
  }
  CHECK(setrlimit(RLIMIT_AS, &before) == 0);
  manager.Free(manager.Malloc(300 << 20));
  manager.Free(large);
  manager.Free(more);
}

/// Neither a call in a capture nor one whose launch fails holds on to its stream, which the program may destroy.
void streams_that_go(const Rank& self) {
  SymmMemManager manager(self.bootstrap, small());
  AllReduce all_reduce(self.bootstrap, manager);
  Array<float> input(8), output(8);
  input.set(std::vector<float>(8, 1));
  const auto execute = [&](hipStream_t stream) { all_reduce.Execute(input.data(), output.data(), 8, HIP_R_32F, ReduceOp::SUM, stream); };
  for (const bool launch_fails : {true, false}) {
    hipStream_t going{}, other{};
    HIP(hipStreamCreate(&going));
    HIP(hipStreamCreate(&other));
    if (launch_fails) {
      // Its first command needs room.
      next_new_fails = true;
      REFUSED(kDevice, "out of memory", execute(going));
      CHECK(!next_new_fails);
    }
    // Nothing can be ordered after a stream while the stream is captured.
    going->capture([&](symmetra::Capture&) {
      if (!launch_fails) REFUSED(kUnsupported, "captured", execute(going));
      execute(other);
    });
    HIP(hipStreamDestroy(going));
    HIP(hipStreamSynchronize(other));
    HIP(hipStreamDestroy(other));
  }
  CHECK(output.get() == std::vector<float>(8, static_cast<float>(self.ranks)));
}

#endif

}  // namespace

int main() {
  Meeting bootstrap;
  bootstrap.Initialize();
  const Rank self{bootstrap, bootstrap.GetRank(), bootstrap.GetWorldSize()};
  int devices = 0;
  HIP(hipGetDeviceCount(&devices));
  HIP(hipSetDevice(self.rank % devices));
  sizes_that_cannot_be(self);
  another_bootstrap(self);
#if P2P_ALLREDUCE_NUMBER(P2P_ALLREDUCE_DEVICE) == P2P_ALLREDUCE_ON_HOST
  no_device(self);
  growth(self);
  short_of_memory(self);
  streams_that_go(self);
#endif
  lost(self);
  killed(self);
  end(self);
}
