// Kernels of a C++ program on the memory of all ranks: what the views hold, launches on the CPU, and what is refused. Accesses are
// checked.
#define SYMMETRA_CHECKED
#include "symmetra/device/heap.cuh"

#include <array>
#include <chrono>
#include <cstddef>

#include "ranks.hpp"

using namespace symmetra;

namespace {

struct Pass {
  device::Heap heap;
  std::uint32_t* words;  ///< one of each rank, one that is sent, and the number of threads that ran
};

/// Puts the own number to every rank, and awaits theirs.
void pass(const Pass& args) {
  const std::uint32_t own = args.heap.signals.rank, world = args.heap.signals.world;
  if (platform::thread() == 0 && platform::block() == 0) args.words[world] = own + 1;
  device::fetch_add(args.heap, args.words + world + 1, 1 + platform::thread() + 100 * platform::block());
  if (platform::thread() == 0) platform::shared<std::uint8_t>()[(48 << 10) - 1] = 7;  // the last byte of the block's own
  if (platform::block() != 0) return;
  platform::sync_block();
  for (std::uint32_t rank = 0; rank < world; ++rank)
    device::put_signal(args.heap, args.words + own, args.words + world, device::Rank{rank}, 4, device::Channel{0});
  for (std::uint32_t rank = 0; rank < world; ++rank) device::wait_signal(args.heap, device::Rank{rank}, device::Channel{0});
}

void pass_works() {
  // Two blocks of five threads, each with its place.
  constexpr std::uint32_t kRan = 2 * (1 + 2 + 3 + 4 + 5) + 5 * 100;
  test::ranks(3, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device);
    const SymmetricBuffer words = communicator.symmetric<std::uint32_t>(5);
    const Pass args{communicator.heap(stream), words.data<std::uint32_t>()};
    CHECK(communicator.has_native_atomics());
    CHECK_EQ(args.heap.channels, Config().heap_channels);
    CHECK_EQ(args.heap.bytes, Config().heap_bytes);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      CHECK(device::at(args.heap, args.words, device::Rank{static_cast<std::uint32_t>(rank)}) == words.peer_data(rank));
    }
    launch({2, 5}, &pass, args, stream);
    communicator.synchronize(stream);
    CHECK(
        (words.read<std::uint32_t>(stream) == std::vector<std::uint32_t>{1, 2, 3, static_cast<std::uint32_t>(bootstrap.rank()) + 1, kRan}));
    const Graph graph = stream.capture([&](Capture& capture) {
      Pass captured = args;
      captured.heap = communicator.heap(std::chrono::seconds(20), capture);
      launch({1, 1}, &pass, captured, capture);
    });
    for (int replay = 0; replay < 10; ++replay) graph.launch(stream);
    communicator.synchronize(stream);
    CHECK_EQ(words.read<std::uint32_t>(stream)[4], kRan + 10);
    communicator.close();
    CHECK_THROWS(kClosed, graph.launch(stream));
    CHECK_THROWS(kClosed, communicator.heap(stream));
  });
}

void what_cannot_be_is_refused() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host(), other = Device::host();
    const Stream stream(device), elsewhere(other);
    const Communicator communicator = Communicator::open(bootstrap, device);
    CHECK_THROWS(kInvalidArgument, communicator.heap(elsewhere));
    CHECK_THROWS(kInvalidArgument, communicator.heap(std::chrono::milliseconds(0), stream));
    const Pass args{communicator.heap(stream), nullptr};
    CHECK_THROWS(kInvalidArgument, launch({0, 1}, &pass, args, stream));
    CHECK_THROWS(kInvalidArgument, launch({257, 1}, &pass, args, stream));
    CHECK_THROWS(kInvalidArgument, launch({2, 4000}, &pass, args, stream));
    const std::array<std::byte, 1041> large{};
    CHECK_THROWS(kInvalidArgument, launch_bytes(
                                       {1, 1}, [](const void*, const void*) {}, large.data(), large.size(), stream));
    CHECK_THROWS(kInvalidArgument, launch(HostShape{}, static_cast<void (*)(const Pass&)>(nullptr), args, stream));
    communicator.close();
  });
}

/// Waits until the group has failed: a call of the host reports the failure as its own timeout, or as an abort.
void hear_of_failure(const Communicator& communicator) {
  try {
    communicator.barrier();
    CHECK(!"the group is well");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kTimeout || error.kind() == ErrorKind::kAborted);
  }
}

/// A store one byte beyond the heap.
void overrun(const Pass& args) {
  device::put(args.heap, args.heap.base[args.heap.signals.rank] + args.heap.bytes - 3, args.words, device::Rank{1 - args.heap.signals.rank},
              4);
}

/// A signal on the first channel number that does not exist.
void signal_nowhere(const Pass& args) {
  device::put_signal(args.heap, args.words, args.words, device::Rank{1}, 4, device::Channel{args.heap.channels});
}

void refused_by_the_kernel(void (*kernel)(const Pass&), const char* words_of_error) {
  test::ranks(2, [&](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device);
    const SymmetricBuffer words = communicator.symmetric<std::uint32_t>(4);
    communicator.barrier();
    if (bootstrap.rank() == 0) {
      launch(HostShape{}, kernel, Pass{communicator.heap(stream), words.data<std::uint32_t>()}, stream);
      const Error error = CHECK_THROWS(kInvalidArgument, communicator.synchronize(stream));
      CHECK(std::string(error.what()).find(words_of_error) != std::string::npos);
      CHECK_THROWS(kInvalidArgument, communicator.heap(stream));
    } else {
      hear_of_failure(communicator);
    }
  });
}

void what_is_outside_the_heap_is_said() {
  refused_by_the_kernel(&overrun, "4 bytes, 67108861 from the beginning of the heap of rank 1");
  refused_by_the_kernel(&signal_nowhere, "the channel of a kernel's signal is 256, but there are 256 (heap_channels)");
}

/// Waits for a value that no thread stores.
void wait_in_vain(const Pass& args) { device::wait_until(args.heap, args.words, device::Rank{1}, device::Compare::kEqual, 7); }

void a_wait_for_a_value_gives_up() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device);
    const SymmetricBuffer words = communicator.symmetric<std::uint32_t>(4);
    communicator.barrier();
    if (bootstrap.rank() == 0) {
      const device::Heap heap = communicator.heap(std::chrono::milliseconds(50), stream);
      launch(HostShape{}, &wait_in_vain, Pass{heap, words.data<std::uint32_t>()}, stream);
      const Error error = CHECK_THROWS(kTimeout, communicator.synchronize(stream));
      CHECK(std::string(error.what()).find("heap") != std::string::npos && error.rank() == 1);
    } else {
      hear_of_failure(communicator);
    }
  });
}

}  // namespace

int main() {
  const struct {
    const char* name;
    void (*run)();
  } cases[] = {{"pass_works", pass_works},
               {"what_cannot_be_is_refused", what_cannot_be_is_refused},
               {"what_is_outside_the_heap_is_said", what_is_outside_the_heap_is_said},
               {"a_wait_for_a_value_gives_up", a_wait_for_a_value_gives_up}};
  for (const auto& test : cases) {
    test.run();
    std::printf("%s ok\n", test.name);
    std::fflush(stdout);
  }
}
