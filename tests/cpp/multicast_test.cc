// A kernel of a C++ program that sums, stores, adds and signals by multicast, on the CPU, and the errors. In a build
// without the feature: that a group reports the missing feature.
#include "symmetra/device/multicast.cuh"

#include <cstring>

#include "ranks.hpp"
#include "symmetra/device/signal.cuh"

using namespace symmetra;
using device::Adds;
using device::Packet;

namespace {

constexpr std::size_t kWorld = 3;
/// Packets of a rank, and floats of all.
constexpr std::uint32_t kPackets = 7;
constexpr std::size_t kFloats = kWorld * kPackets * 4;

struct Exchange {
  device::MulticastData inputs;    ///< floats
  device::MulticastData halves;    ///< bf16, as many bytes
  device::MulticastData quarters;  ///< e4m3, as many bytes
  device::MulticastData gathered;  ///< floats: each rank stores its part
  device::MulticastData counters;
  device::SignalPad pad;  ///< a channel a block, and one for a signal to one rank
  float* sums;
  std::uint16_t* half_sums;
  std::uint8_t* quarter_sums;
};

/// Awaits a signal of every rank.
bool await_all(const device::SignalPad& pad, std::uint32_t channel) {
  bool met = true;
  if (platform::thread() == 0) {
    for (std::uint32_t peer = 0; peer < pad.world; ++peer) met &= device::wait(pad, device::Rank{peer}, device::Channel{channel});
  }
  return !platform::sync_block_or(!met);
}

/// Sums all inputs, stores the own part on all ranks, and adds to the counters of all ranks.
void exchange(const Exchange& args) {
  const device::Multicast<float> inputs(args.inputs), gathered(args.gathered);
  const device::Multicast<std::uint16_t, Adds::kBF16> halves(args.halves);
  const device::Multicast<std::uint8_t, Adds::kE4M3> quarters(args.quarters);
  const device::Multicast<std::uint32_t> counters(args.counters);
  const std::uint32_t rank = args.pad.rank, world = inputs.world(), block = platform::block();
  // A signal to one rank and a signal to all ranks count alike.
  if (platform::thread() == 0 && rank == 0) device::put(args.pad, device::Rank{1}, device::Channel{block});
  const std::uint32_t step = platform::blocks() * platform::threads();
  for (std::uint32_t i = block * platform::threads() + platform::thread(); i < world * kPackets; i += step) {
    const Packet<float> sum = inputs.load_sum(i);
    std::memcpy(args.sums + i * 4, &sum, sizeof(sum));
    const Packet<std::uint16_t> half_sum = halves.load_sum(i);
    std::memcpy(args.half_sums + i * 8, &half_sum, sizeof(half_sum));
    const Packet<std::uint8_t> quarter_sum = quarters.load_sum(i);
    std::memcpy(args.quarter_sums + i * 16, &quarter_sum, sizeof(quarter_sum));
    if (i / kPackets == rank) gathered.store(i, sum);
    counters.add(1, i);
  }
  platform::sync_block();
  if (platform::thread() == 0) {
    counters.add<device::Order::kRelease>(2, rank + 1);
    gathered.signal(args.pad, device::Channel{block});
    if (rank == 1) device::wait(args.pad, device::Rank{0}, device::Channel{block});
  }
  await_all(args.pad, block);
}

float value(std::size_t rank, std::size_t i) { return static_cast<float>((rank * 31 + i * 7) % 97) / 4; }

/// A bf16 with few significant bits, whose sums are exact.
std::uint16_t half(std::size_t rank, std::size_t i) {
  const float exact = static_cast<float>((rank * 5 + i) % 16);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &exact, sizeof(bits));
  return static_cast<std::uint16_t>(bits >> 16);
}

std::uint16_t half_sum(std::size_t i) {
  float sum = 0;
  for (std::size_t rank = 0; rank < kWorld; ++rank) sum += static_cast<float>((rank * 5 + i) % 16);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &sum, sizeof(bits));
  return static_cast<std::uint16_t>(bits >> 16);
}

/// Codes of e4m3: 256, -256, and 2^-9, which f16 loses where it is not added last.
std::uint8_t quarter(std::size_t rank, std::size_t i) {
  constexpr std::uint8_t kCodes[] = {0x78, 0xF8, 0x01};
  return kCodes[(rank + i) % 3];
}
std::uint8_t quarter_sum(std::size_t i) { return i % 3 == 0 ? 0x01 : 0x00; }

Config with_multicast() {
  Config config;
  config.multicast = symmetra::Multicast::kRequire;
  return config;
}

void exchange_works() {
  test::ranks(kWorld, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, with_multicast());
    const SymmetricBuffer inputs = communicator.symmetric<float>(kFloats), gathered = communicator.symmetric<float>(kFloats + 4);
    const SymmetricBuffer halves = communicator.symmetric(2 * kFloats, Dtype::kBF16);
    const SymmetricBuffer quarters = communicator.symmetric(4 * kFloats, Dtype::kF8E4M3);
    const SymmetricBuffer counters = communicator.symmetric<std::uint32_t>(4);
    const DeviceBuffer sums(device, kFloats, Dtype::kF32), half_sums(device, 2 * kFloats, Dtype::kBF16);
    const DeviceBuffer quarter_sums(device, 4 * kFloats, Dtype::kF8E4M3);
    std::vector<float> floats(kFloats);
    for (std::size_t i = 0; i < kFloats; ++i) floats[i] = value(bootstrap.rank(), i);
    inputs.write(floats, stream);
    std::vector<std::uint16_t> words(2 * kFloats);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = half(bootstrap.rank(), i);
    halves.write(words.data(), stream);
    std::vector<std::uint8_t> codes(4 * kFloats);
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = quarter(bootstrap.rank(), i);
    quarters.write(codes.data(), stream);
    communicator.barrier();
    // A view of a part: the first packet is left alone.
    const Exchange args{inputs.multicast_data(),
                        halves.multicast_data(),
                        quarters.multicast_data(),
                        gathered.multicast_data(4),
                        counters.multicast_data(),
                        gathered.signals().view(),
                        sums.data<float>(),
                        static_cast<std::uint16_t*>(half_sums.data()),
                        static_cast<std::uint8_t*>(quarter_sums.data())};
    CHECK_EQ(args.gathered.offset_bytes, gathered.offset_bytes() + 16);
    CHECK_EQ(args.inputs.world, kWorld);
    launch({1, 1}, &exchange, args, stream);
    launch({2, 3}, &exchange, args, stream);
    const Graph graph = stream.capture([&](Capture& capture) { launch({2, 3}, &exchange, args, capture); });
    for (int replay = 0; replay < 10; ++replay) graph.launch(stream);
    communicator.synchronize(stream);
    communicator.barrier();
    const std::vector<float> summed = sums.read<float>(stream), all = gathered.read<float>(stream);
    half_sums.read(words.data(), stream);
    quarter_sums.read(codes.data(), stream);
    for (std::size_t i = 0; i < codes.size(); ++i) CHECK_EQ(static_cast<unsigned>(codes[i]), static_cast<unsigned>(quarter_sum(i)));
    for (std::size_t i = 0; i < kFloats; ++i) {
      const float sum = value(0, i) + value(1, i) + value(2, i);
      CHECK_EQ(summed[i], sum);
      CHECK_EQ(all[i + 4], sum);
      CHECK_EQ(words[2 * i], half_sum(2 * i));
      CHECK_EQ(words[2 * i + 1], half_sum(2 * i + 1));
    }
    for (std::size_t i = 0; i < 4; ++i) CHECK_EQ(all[i], 0.0F);
    // Twelve launches, of which all but the first have two blocks.
    constexpr std::uint32_t kItems = kWorld * kPackets, kAdded = 12 * kWorld * (kItems * (kItems - 1) / 2), kBlocks = 23;
    CHECK((counters.read<std::uint32_t>(stream) == std::vector<std::uint32_t>{0, kAdded, kBlocks * (1 + 2 + 3), 0}));
    communicator.close();
    CHECK_THROWS(kClosed, inputs.multicast_data());
  });
}

void what_cannot_be_is_refused() {
  const auto says = [](const Error& error, const char* words) { CHECK(std::string(error.what()).find(words) != std::string::npos); };
  test::ranks(2, [&](Bootstrap& bootstrap) {
    const Communicator communicator = Communicator::open(bootstrap, Device::host(), with_multicast());
    const SymmetricBuffer words = communicator.symmetric<std::uint32_t>(8);
    says(CHECK_THROWS(kInvalidArgument, words.multicast_data(1)), "it must be a multiple of 16 bytes");
    says(CHECK_THROWS(kInvalidArgument, words.multicast_data(9)), "the memory has 8");
    communicator.close();
  });
  test::ranks(2, [&](Bootstrap& bootstrap) {
    const Communicator communicator = Communicator::open(bootstrap, Device::host());
    const SymmetricBuffer words = communicator.symmetric<std::uint32_t>(8);
    says(CHECK_THROWS(kUnsupported, words.multicast_data()), "multicast is not open: the configuration does not ask for it");
    communicator.close();
  });
}

void a_build_without_says_so() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Error error = CHECK_THROWS(kUnsupported, Communicator::open(bootstrap, Device::host(), with_multicast()));
    CHECK(std::string(error.what()).find("without the feature `multicast`") != std::string::npos);
  });
}

}  // namespace

int main(int count, char**) {
  if (count > 1) {
    exchange_works();
    std::printf("exchange_works ok\n");
    what_cannot_be_is_refused();
    std::printf("what_cannot_be_is_refused ok\n");
  } else {
    a_build_without_says_so();
    std::printf("a_build_without_says_so ok\n");
  }
}
