// Failures of the public C++ API: every kind of error that can be reached without a GPU, foreign bootstraps, use after
// close and move, and that hot calls allocate nothing.

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>

#include "ranks.hpp"

using namespace symmetra;
using std::chrono::milliseconds;

/// Linked with -Wl,--wrap for each: allocations of this thread, C++ and Rust alike.
static thread_local std::size_t allocations = 0;
extern "C" {
void* __real_malloc(std::size_t);
void* __real_realloc(void*, std::size_t);
void* __real_calloc(std::size_t, std::size_t);
int __real_posix_memalign(void**, std::size_t, std::size_t);
void* __wrap_malloc(std::size_t bytes) { return ++allocations, __real_malloc(bytes); }
void* __wrap_realloc(void* old, std::size_t bytes) { return ++allocations, __real_realloc(old, bytes); }
void* __wrap_calloc(std::size_t count, std::size_t bytes) { return ++allocations, __real_calloc(count, bytes); }
int __wrap_posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  return ++allocations, __real_posix_memalign(out, alignment, bytes);
}
}
// The standard library's own would call a malloc that is not wrapped.
void* operator new(std::size_t bytes) {
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

Config small() {
  Config config;
  config.heap_bytes = 1 << 20;
  return config;
}

bool says(const Error& error, const char* words) {
  if (std::strstr(error.what(), words) != nullptr) return true;
  std::fprintf(stderr, "it says: %s\n", error.what());
  return false;
}

/// A bootstrap of the caller's: threads over a condition variable.
class Foreign : public Bootstrap {
 public:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::uint8_t> given, result;
    std::size_t arrived = 0, round = 0;
  };

  Foreign(Shared& shared, std::size_t rank, std::size_t world) : shared_(shared), rank_(rank), world_(world) {}
  std::size_t rank() const override { return rank_; }
  std::size_t world_size() const override { return world_; }
  void all_gather(const void* send, void* receive, std::size_t bytes, Deadline deadline) override {
    std::unique_lock lock(shared_.mutex);
    shared_.given.resize(world_ * bytes);
    std::memcpy(shared_.given.data() + rank_ * bytes, send, bytes);
    const std::size_t round = shared_.round;
    if (++shared_.arrived == world_) {
      shared_.result = shared_.given;
      shared_.arrived = 0;
      ++shared_.round;
      shared_.changed.notify_all();
    }
    if (!shared_.changed.wait_until(lock, deadline, [&] { return shared_.round != round; })) throw std::runtime_error("nobody came");
    std::memcpy(receive, shared_.result.data(), world_ * bytes);
  }

 private:
  Shared& shared_;
  std::size_t rank_, world_;
};

/// A bootstrap that throws a given exception.
template <class Thrown>
class Broken final : public Foreign {
 public:
  Broken(Shared& shared, Thrown thrown) : Foreign(shared, 0, 2), thrown_(std::move(thrown)) {}
  void all_gather(const void*, void*, std::size_t, Deadline) override { throw thrown_; }

 private:
  Thrown thrown_;
};

void foreign_bootstraps() {
  const Device device = Device::host();
  Foreign::Shared shared;
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Foreign bootstrap(shared, rank, 3);
      // Twice with one object: it is only borrowed.
      for (int again = 0; again < 2; ++again) {
        const Communicator communicator = Communicator::open(bootstrap, device, small());
        CHECK_EQ(communicator.rank(), rank);
        communicator.close();
      }
    });
  }
  for (auto& thread : threads) thread.join();

  Foreign outside(shared, 5, 3), many(shared, 0, 17), none(shared, 0, 0);
  CHECK(says(CHECK_THROWS(kInvalidArgument, Communicator::open(outside, device)), "rank is 5"));
  CHECK(says(CHECK_THROWS(kInvalidArgument, Communicator::open(many, device)), "world size is 17, but it must be 1 to 16"));
  CHECK_THROWS(kInvalidArgument, Communicator::open(none, device));

  Broken words(shared, std::runtime_error("store | unreachable"));
  CHECK_EQ(std::string(CHECK_THROWS(kBootstrap, Communicator::open(words, device)).what()), "store | unreachable");
  Broken typed(shared, Error(ErrorKind::kTimeout, "too late", 0, 1));
  CHECK_EQ(std::string(CHECK_THROWS(kBootstrap, Communicator::open(typed, device)).what()), "too late");
  Broken lost(shared, Error(ErrorKind::kPeerLost, "killed", 0, 1));
  const Error gone = CHECK_THROWS(kPeerLost, Communicator::open(lost, device));
  CHECK(gone.rank() == 1 && says(gone, "killed"));
  Broken nobody(shared, Error(ErrorKind::kPeerLost, "killed"));
  CHECK_EQ(std::string(CHECK_THROWS(kBootstrap, Communicator::open(nobody, device)).what()), "killed");
  Broken number(shared, 5);
  CHECK_THROWS(kBootstrap, Communicator::open(number, device));
  Foreign alone(shared, 0, 2);
  Config hasty = small();
  hasty.deadlines.open = milliseconds(50);
  shared.arrived = 0;
  CHECK(says(CHECK_THROWS(kBootstrap, Communicator::open(alone, device, hasty)), "nobody came"));
}

void arguments() {
  if (Device::count(DeviceKind::kCuda) == 0) {
    // Built without the feature, or no GPU here.
    try {
      Device::cuda(0);
      test::fail(__FILE__, __LINE__, "there is no such device");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kUnsupported || error.kind() == ErrorKind::kInvalidArgument);
    }
  }
  CHECK_THROWS(kInvalidArgument, algorithm("fastest"));
  CHECK(says(CHECK_THROWS(kInvalidArgument, size_bytes(static_cast<Dtype>(12))), "less than 12"));
  CHECK_THROWS(kInvalidArgument, name(static_cast<Reduction>(5)));
  CHECK(says(CHECK_THROWS(kInvalidArgument, reduction("mean")), "sum, prod, min, max, avg"));
  CHECK_THROWS(kInvalidArgument, bootstrap::threads(0));
  CHECK_THROWS(kInvalidArgument, bootstrap::UniqueId::parse("127.0.0.1:1"));
  CHECK_EQ(CHECK_THROWS(kSystem, bootstrap::local("/nowhere/at/all", 0, 2)).native_code(), ENOENT);
  CHECK(says(CHECK_THROWS(kInvalidArgument, bootstrap::UniqueId::listen_at("eth99")), "lo (127.0.0.1"));
  CHECK_EQ(bootstrap::UniqueId::listen_at("lo").text().rfind("127.0.0.1:", 0), 0u);
  bootstrap::UniqueId id = bootstrap::UniqueId::listen();
  CHECK_THROWS(kTimeout, bootstrap::tcp(std::move(id), 0, 2, milliseconds(50)));
  CHECK_THROWS(kInvalidArgument, id.text());
  Config config;
  config.registrations = 0;
  CHECK(says(CHECK_THROWS(kInvalidArgument, required_bytes(2, config)), "registrations is 0"));
  config = Config();
  config.most_blocks = 0;
  CHECK(says(CHECK_THROWS(kInvalidArgument, required_bytes(2, config)), "most_blocks is 0, but it must be 1 to 65535"));
  config = Config();
  CHECK_EQ(config.determinism, Determinism::kPerAlgorithm);
  config.determinism = static_cast<Determinism>(4);
  CHECK(says(CHECK_THROWS(kInvalidArgument, required_bytes(2, config)), "the number of a Determinism is 4"));

  const Device device = Device::host();
  CHECK_THROWS(kInvalidArgument, Stream::borrow(device, &config));
  CHECK_THROWS(kInvalidArgument, DeviceBuffer(device, ~std::size_t{0}, Dtype::kF64));
  const Stream stream(device);
  const DeviceBuffer buffer(device, 2, Dtype::kF32);
  CHECK_THROWS(kInvalidArgument, buffer.data<double>());
  CHECK_THROWS(kInvalidArgument, buffer.write(std::vector<float>(3), stream));
  CHECK_THROWS(kInvalidArgument, buffer.write(nullptr, stream));
  Device moved = Device::host();
  const Device taken = std::move(moved);
  CHECK(says(CHECK_THROWS(kInvalidArgument, moved.name()), "moved from"));
}

void operands() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    alignas(8) float values[8] = {};
    auto reduce = [&](Operand input, Operand output, Algorithm algorithm = Algorithm::kAuto) {
      communicator.all_reduce(input, output, stream, algorithm);
    };
    char* bytes = reinterpret_cast<char*>(values);
    CHECK(says(CHECK_THROWS(kInvalidArgument, reduce(Operand(bytes + 1, 1, Dtype::kF32), Operand(values, 1))), "aligned to 4"));
    CHECK(says(CHECK_THROWS(kInvalidArgument, reduce(Operand(values, 2), Operand(values, 3))), "the output's length is 3"));
    CHECK(says(CHECK_THROWS(kInvalidArgument, reduce(Operand(values, 2), Operand(values, 2, Dtype::kI32))), "the output's type is i32"));
    CHECK_THROWS(kInvalidArgument, reduce(Operand(values, 4), Operand(values + 1, 4)));
    CHECK_THROWS(kInvalidArgument, reduce(Operand(nullptr, 4, Dtype::kF32), Operand(values, 4)));
    CHECK_THROWS(kInvalidArgument, reduce(Operand(values, 4, static_cast<Dtype>(12)), Operand(values, 4)));
    CHECK_THROWS(kInvalidArgument, reduce(Operand(values, 4), Operand(values, 4), static_cast<Algorithm>(10)));
    CHECK_THROWS(kInvalidArgument, reduce(Operand(values, ~std::size_t{0} / 2), Operand(values, ~std::size_t{0} / 2)));
    CHECK_THROWS(kUnsupported, reduce(Operand(values, 4), Operand(values, 4), Algorithm::kTwoShotZeroCopy));
    const Operand integers(values, 4, Dtype::kI32);
    CHECK(says(CHECK_THROWS(kUnsupported, reduce(integers, integers, Algorithm::kOneShotSentinel)), "one-shot-sentinel of i32"));
    reduce(Operand(nullptr, 0, Dtype::kF32), Operand(nullptr, 0, Dtype::kF32));

    SymmetricBuffer buffer = communicator.symmetric<float>(8);
    CHECK_THROWS(kInvalidArgument, reduce(Operand(buffer, 4, 5), Operand(values, 5)));
    CHECK_THROWS(kInvalidArgument, reduce(Operand(buffer, ~std::size_t{0}, 2), Operand(values, 2)));
    CHECK_THROWS(kInvalidArgument, buffer.peer_data(2));
    CHECK_THROWS(kInvalidArgument, buffer.signals().put(0, kSignalChannels, stream));
    CHECK_THROWS(kInvalidArgument, buffer.signals().wait(2, 0, stream));
    CHECK_THROWS(kOutOfMemory, communicator.symmetric<float>(1 << 20));
    CHECK_THROWS(kInvalidArgument, communicator.symmetric<float>(~std::size_t{0}));
    CHECK_THROWS(kMismatch, communicator.symmetric<float>(1 + communicator.rank()));
    if (communicator.rank() == 0) CHECK_THROWS(kInvalidArgument, communicator.symmetric<float>(~std::size_t{0}));
    if (communicator.rank() != 0) CHECK_THROWS(kMismatch, communicator.symmetric<float>(1));
    CHECK_THROWS(kMismatch, communicator.adopt(values, 1 + communicator.rank()));
    // When one rank has no memory to adopt, the other ranks learn of the error.
    if (communicator.rank() == 0) CHECK_THROWS(kInvalidArgument, communicator.adopt(static_cast<float*>(nullptr), 1));
    if (communicator.rank() != 0) CHECK_THROWS(kPeer, communicator.adopt(values, 1));
    // Addresses by which a rank is to reach the others' memory.
    const auto mapped = [&](std::vector<void*> peers) { communicator.adopt(values, 1, Dtype::kF32, peers); };
    CHECK(says(CHECK_THROWS(kInvalidArgument, mapped({})), "the number of addresses is 0, but the world size is 2"));
    CHECK(says(CHECK_THROWS(kInvalidArgument, mapped({nullptr, nullptr})), "but the memory has elements"));
    const Adopted adopted = communicator.adopt(values, 1);
    CHECK_THROWS(kInvalidArgument, communicator.all_reduce(Operand(adopted, 1, 1), stream));
    const SymmetricBuffer taken = std::move(buffer);
    CHECK(says(CHECK_THROWS(kInvalidArgument, communicator.all_reduce(buffer, stream)), "moved from"));
    CHECK(says(CHECK_THROWS(kInvalidArgument, communicator.all_reduce(Operand(buffer, 0, 4), stream)), "moved from"));
    CHECK(says(CHECK_THROWS(kInvalidArgument, communicator.all_reduce(Operand(buffer, 8, 0), stream)), "moved from"));
    // Counts that wrapped are no counts.
    const std::size_t none = taken.count() - 8, wrapped = none - 1;
    CHECK(says(CHECK_THROWS(kInvalidArgument, communicator.all_reduce(Operand(taken, 0, wrapped), stream)), "the memory has 8"));
    const Error error = CHECK_THROWS(kInvalidArgument, communicator.all_reduce(Operand(values, wrapped), stream));
    CHECK(std::strstr(error.what(), "moved from") == nullptr);
    std::uint8_t byte = 0, bytes_of_all[2];
    CHECK(says(CHECK_THROWS(kInvalidArgument, communicator.all_gather_bytes(nullptr, bytes_of_all, 1)), "sends is null"));
    CHECK(says(CHECK_THROWS(kInvalidArgument, communicator.all_gather_bytes(&byte, nullptr, 1)), "receives is null, but must be 2 bytes"));
    CHECK_THROWS(kInvalidArgument, bootstrap.all_gather(nullptr, bytes_of_all, 1, std::chrono::steady_clock::now()));
    communicator.all_gather_bytes(nullptr, nullptr, 0);
    communicator.check();
    communicator.close();
  });
}

void disagreeing_ranks() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    Config config = small();
    config.heap_bytes += bootstrap.rank();
    CHECK_EQ(CHECK_THROWS(kMismatch, Communicator::open(bootstrap, Device::host(), config)).rank(), 1);
  });
  test::ranks(2, [](Bootstrap& bootstrap) {
    Config config = small();
    if (bootstrap.rank() == 0) config.registrations = 0;
    const auto open = [&] { (void)Communicator::open(bootstrap, Device::host(), config); };
    if (bootstrap.rank() == 0) {
      CHECK_THROWS(kInvalidArgument, open());
    } else {
      CHECK_EQ(CHECK_THROWS(kPeer, open()).rank(), 0);
    }
  });
  for (const bool tags : {false, true}) {
    std::atomic<int> mismatches = 0;
    test::ranks(2, [&](Bootstrap& bootstrap) {
      const Device device = Device::host();
      const Stream stream(device);
      Config config = small();
      config.check_calls = true;
      const Communicator communicator = Communicator::open(bootstrap, device, config);
      std::vector<float> values(8, 1.0f);
      // Calls that differ in their sizes, or in their tags alone.
      const std::size_t rank = communicator.rank();
      communicator.tagged(tags ? 1 + rank : 0).all_reduce(Operand(values.data(), tags ? 4 : 4 + rank), stream);
      stream.synchronize();
      const std::int32_t peer = 1 - static_cast<std::int32_t>(communicator.rank());
      // The rank that looks second may find that the other rank has given up already.
      try {
        communicator.check();
        test::fail(__FILE__, __LINE__, "the ranks agreed");
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::kMismatch || error.kind() == ErrorKind::kAborted);
        if (error.kind() != ErrorKind::kMismatch) return;
        CHECK_EQ(error.rank(), peer);
        CHECK(!tags || (says(error, ", tag 1") && says(error, ", tag 2")));
        ++mismatches;
      }
    });
    CHECK(mismatches >= 1);
  }
}

void closed() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    const SymmetricBuffer buffer = communicator.symmetric<float>(8);
    const Graph graph = stream.capture([&](Capture& capture) { communicator.all_reduce(buffer, capture); });
    const Graph meeting = stream.capture([&](Capture& capture) { buffer.signals().barrier(0, capture); });
    communicator.close();
    CHECK_THROWS(kClosed, communicator.close());
    CHECK_THROWS(kClosed, communicator.check());
    CHECK_THROWS(kClosed, communicator.all_reduce(buffer, stream));
    CHECK_THROWS(kClosed, communicator.symmetric<float>(1));
    CHECK_THROWS(kClosed, communicator.barrier());
    CHECK_THROWS(kClosed, communicator.split(0));
    CHECK_THROWS(kClosed, graph.launch(stream));
    CHECK_THROWS(kClosed, meeting.launch(stream));
    CHECK_THROWS(kClosed, buffer.signals().barrier(0, stream));
    CHECK_THROWS(kClosed, buffer.peer_data(0));
    CHECK(buffer.read<float>(stream) == std::vector<float>(8));
  });
}

/// Throws the error of the group, once the group fails.
void until_it_fails(const Communicator& communicator) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    communicator.check();
    std::this_thread::sleep_for(milliseconds(1));
  }
}

void aborted() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    if (communicator.rank() == 0) {
      std::vector<float> values(8);
      communicator.all_reduce(Operand(values.data(), 8), stream);
      std::thread other([&] { communicator.abort(); });
      CHECK_THROWS(kAborted, communicator.synchronize(stream));
      other.join();
      communicator.abort();
    } else {
      CHECK_THROWS(kAborted, until_it_fails(communicator));
    }
    CHECK_THROWS(kAborted, communicator.close());
  });
}

void lost_and_late() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    communicator.barrier();
    if (communicator.rank() == 1) return;  // unclosed: lost
    std::vector<float> values(8);
    auto reduce = [&] {
      communicator.all_reduce(Operand(values.data(), 8), stream);
      communicator.synchronize(stream);
    };
    CHECK_EQ(CHECK_THROWS(kPeerLost, reduce()).rank(), 1);
  });
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    Config config = small();
    config.deadlines.first_use = config.deadlines.steady = milliseconds(100);
    const Communicator communicator = Communicator::open(bootstrap, device, config);
    if (communicator.rank() == 0) {
      std::vector<float> values(8);
      communicator.all_reduce(Operand(values.data(), 8), stream);
      CHECK_EQ(CHECK_THROWS(kTimeout, communicator.synchronize(stream)).rank(), 1);
    } else {
      CHECK_THROWS(kAborted, until_it_fails(communicator));
    }
  });
}

/// Collective calls of the host that differ, and a call that is notified of a peer's timeout in another call.
void host_calls() {
  std::atomic<int> done{0};
  const auto meet = [&done](int ranks) {
    for (++done; done < ranks;) std::this_thread::sleep_for(milliseconds(1));
  };
  test::ranks(2, [&](Bootstrap& bootstrap) {
    const Communicator communicator = Communicator::open(bootstrap, Device::host(), small());
    const Error differs =
        CHECK_THROWS(kMismatch, [&] { communicator.rank() == 0 ? communicator.barrier() : (void)communicator.symmetric<float>(64); }());
    CHECK(says(differs, "barrier") && says(differs, "make symmetric memory"));
    meet(2);
    const Error later = CHECK_THROWS(kMismatch, communicator.barrier());
    CHECK(says(later, "barrier") && says(later, "make symmetric memory"));
    meet(4);
  });
  done = 0;
  test::ranks(2, [&](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    Config config = small();
    config.check_calls = false;
    config.deadlines.first_use = config.deadlines.steady = milliseconds(300);
    const Communicator communicator = Communicator::open(bootstrap, device, config);
    const SymmetricBuffer buffer = communicator.symmetric<float>(64);
    if (communicator.rank() == 1) {
      communicator.broadcast(buffer, 0, stream);
      CHECK_EQ(CHECK_THROWS(kTimeout, communicator.synchronize(stream)).rank(), 0);
    } else {
      const Error told = CHECK_THROWS(kAborted, communicator.barrier());
      CHECK(says(told, "rank 1 had waited too long for this one in broadcast 0"));
      CHECK_EQ(told.rank(), -1);
    }
  });
  for (const milliseconds limit : {milliseconds(0), milliseconds(-1), milliseconds(86'400'001)}) {
    Foreign::Shared shared;
    Foreign alone(shared, 0, 2);
    Config config = small();
    config.deadlines.open = limit;
    CHECK(says(CHECK_THROWS(kInvalidArgument, Communicator::open(alone, Device::host(), config)), "deadlines.open is "));
  }
}

void captures() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    std::vector<float> values(50'000, 1.0f);
    const Operand plain(values.data(), values.size());
    const Graph graph = stream.capture([&](Capture& capture) { communicator.all_reduce(plain, capture); });
    CHECK(says(CHECK_THROWS(kNotRegistered, graph.launch(stream)), "1 unregistered"));

    // An exception of the function comes out as it is, and the stream is free again.
    struct Own {};
    bool caught = false;
    try {
      stream.capture([](Capture&) { throw Own{}; });
    } catch (const Own&) {
      caught = true;
    }
    CHECK(caught);
    stream.capture([&](Capture& capture) {
      CHECK_THROWS(kUnsupported, communicator.all_reduce(plain, stream));
      CHECK_THROWS(kUnsupported, stream.capture([](Capture&) {}));
      std::thread([&] { CHECK_THROWS(kInvalidArgument, communicator.all_reduce(plain, capture)); }).join();
    });

    // Ranks that captured different pointers.
    const Graph uneven =
        stream.capture([&](Capture& capture) { communicator.all_reduce(Operand(values.data(), 40'000 + communicator.rank()), capture); });
    CHECK_THROWS(kMismatch, uneven.register_pointers());
    graph.register_pointers();
    graph.launch(stream);
    communicator.synchronize(stream);
    CHECK_EQ(values[49'999], 2.0f);
    communicator.close();
  });
}

void hot_calls_allocate_nothing() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    Config config = small();
    const Communicator communicator = Communicator::open(bootstrap, device, config);
    const SymmetricBuffer buffer = communicator.symmetric<float>(64);
    const SignalPad pad = buffer.signals();
    std::vector<float> values(64);
    const std::size_t peer = 1 - communicator.rank();
    const Graph graph = stream.capture([&](Capture& capture) { communicator.all_reduce(buffer, capture); });
    const BoundAllReduce bound = communicator.bind_all_reduce(buffer, buffer);
    EnvConfig parallel;
    parallel.tensor_parallel_size = 2;
    parallel.communicator = config;
    parallel.device = &device;
    const Environment environment = Environment::init(bootstrap, parallel);
    auto hot = [&] {
      communicator.all_reduce(buffer, stream);
      bound.enqueue(stream);
      communicator.all_reduce(values.data(), values.data(), values.size(), stream);
      environment.tp().all_reduce(Operand(values.data(), values.size()), stream);
      environment.tp().broadcast(Operand(values.data(), values.size()), 1, stream);
      pad.put(peer, 0, stream);
      pad.wait(peer, 0, stream);
      pad.barrier(1, stream);
      graph.launch(stream);
      communicator.check();
    };
    hot();
    communicator.synchronize(stream);
    allocations = 0;
    for (int again = 0; again < 20; ++again) {
      hot();
      stream.synchronize();
    }
    CHECK_EQ(allocations, 0u);
    const std::string long_enough(100, '.');
    CHECK_EQ(allocations, 1u);
    CHECK_THROWS(kInvalidArgument, algorithm(long_enough));
    CHECK(allocations > 2);
    communicator.synchronize(stream);
    environment.close();
    communicator.close();
  });
}

void departed() {
  std::atomic<int> gone{0}, looked{0};
  test::ranks(3, [&](Bootstrap& bootstrap) {
    Communicator communicator = Communicator::open(bootstrap, Device::host(), small());
    const Stream stream(communicator.device());
    const SymmetricBuffer buffer = communicator.symmetric<float>(8);
    buffer.write(std::vector<float>(8, 1), stream);
    communicator.barrier();
    communicator.all_reduce(buffer, stream);
    if (communicator.rank() == 1) {
      communicator.depart();
      CHECK_THROWS(kClosed, communicator.depart());
      CHECK_THROWS(kClosed, communicator.close());
      CHECK_THROWS(kClosed, communicator.all_reduce(buffer, stream));
      CHECK(buffer.read<float>(stream) == std::vector<float>(8, 3));
      ++gone;
      return;
    }
    while (gone == 0) std::this_thread::sleep_for(milliseconds(1));
    communicator.synchronize(stream);
    communicator.check();
    CHECK(buffer.read<float>(stream) == std::vector<float>(8, 3));
    // A call that needs the rank fails the group for both.
    for (++looked; looked < 2;) std::this_thread::sleep_for(milliseconds(1));
    const Error lost = CHECK_THROWS(kPeerLost, [&] {
      communicator.all_reduce(buffer, stream);
      for (;;) communicator.synchronize(stream);
    }());
    CHECK_EQ(lost.rank(), 1);
    CHECK(says(lost, ": it left in good order"));
    CHECK(says(CHECK_THROWS(kPeerLost, communicator.depart()), ": it left in good order"));
    ++gone;
    while (gone < 3) std::this_thread::sleep_for(milliseconds(1));
  });
}

/// A rank that leaves in a call which no peer makes: the peers stay well until a call needs the rank.
void abandoned() {
  std::atomic<int> gone{0}, looked{0};
  test::ranks(3, [&](Bootstrap& bootstrap) {
    Config config = small();
    config.silence = true;
    Communicator communicator = Communicator::open(bootstrap, Device::host(), config);
    const Stream stream(communicator.device());
    const SymmetricBuffer buffer = communicator.symmetric<float>(8);
    communicator.all_reduce(buffer, stream);
    communicator.synchronize(stream);
    communicator.barrier();
    if (communicator.rank() == 1) {
      communicator.all_reduce(buffer, stream);
      communicator.abandon();
      stream.synchronize();
      CHECK_THROWS(kClosed, communicator.all_reduce(buffer, stream));
      CHECK_THROWS(kClosed, communicator.close());
      ++gone;
      while (gone < 3) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    while (gone == 0) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(200));
    communicator.check();
    for (++looked; looked < 2;) std::this_thread::sleep_for(milliseconds(1));
    const Error lost = CHECK_THROWS(kPeerLost, [&] {
      communicator.all_reduce(buffer, stream);
      for (;;) communicator.synchronize(stream);
    }());
    CHECK_EQ(lost.rank(), 1);
    CHECK(says(lost, ": it abandoned its communicator"));
    ++gone;
    while (gone < 3) std::this_thread::sleep_for(milliseconds(1));
  });
}

}  // namespace

int main() {
  const struct {
    const char* name;
    void (*run)();
  } cases[] = {{"foreign_bootstraps", foreign_bootstraps},
               {"arguments", arguments},
               {"operands", operands},
               {"disagreeing_ranks", disagreeing_ranks},
               {"closed", closed},
               {"aborted", aborted},
               {"lost_and_late", lost_and_late},
               {"host_calls", host_calls},
               {"departed", departed},
               {"abandoned", abandoned},
               {"captures", captures},
               {"hot_calls_allocate_nothing", hot_calls_allocate_nothing}};
  for (const auto& test : cases) {
    test.run();
    std::printf("%s ok\n", test.name);
    std::fflush(stdout);
  }
}
