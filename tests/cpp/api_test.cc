// The public C++ API on the host device, with threads as ranks: every class.
// Parallel groups are in environment_test.cc; failures are in error_test.cc.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "norm_formats.hpp"
#include "round.hpp"

using namespace symmetra;

namespace {

/// Small enough that many groups fit a small machine.
Config small() {
  Config config;
  config.heap_bytes = 8 << 20;
  return config;
}

std::vector<float> filled(std::size_t count, float value) { return std::vector<float>(count, value); }

std::vector<float> joined(std::vector<float> first, const std::vector<float>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

void types() {
  CHECK_EQ(size_bytes(Dtype::kBF16), 2u);
  CHECK_EQ(name(Dtype::kI64), "i64");
  for (const Algorithm known : {Algorithm::kAuto, Algorithm::kOneShotLL, Algorithm::kTwoShotZeroCopy}) {
    CHECK_EQ(algorithm(name(known)), known);
  }
  CHECK_EQ(name(Algorithm::kTwoShotSentinel), "two-shot-sentinel");
  for (const Codec known : {Codec::kNone, Codec::kFp8, Codec::kInt8, Codec::kInt6, Codec::kInt4}) CHECK_EQ(codec(name(known)), known);
  CHECK_EQ(name(Codec::kInt6), "int6");
  CHECK_THROWS(kInvalidArgument, codec("int3"));
  CHECK_EQ(name(DtypeOf<std::uint8_t>::kValue), "u8");
  CHECK_EQ(size_bytes(Dtype::kU64), 8u);
  CHECK_EQ(name(Dtype::kF8E4M3), "f8e4m3");
  CHECK_EQ(name(Dtype::kF8E5M2), "f8e5m2");
  CHECK_EQ(size_bytes(Dtype::kF8E4M3), 1u);
  CHECK_EQ(size_bytes(Dtype::kF8E5M2), 1u);
  for (const Reduction known : {Reduction::kSum, Reduction::kProduct, Reduction::kMin, Reduction::kMax, Reduction::kAverage}) {
    CHECK_EQ(reduction(name(known)), known);
  }
  CHECK_EQ(name(Reduction::kProduct), "prod");
}

void devices() {
  CHECK(Device::count(DeviceKind::kHost) >= 1);
  Device device = Device::host();
  CHECK(device.kind() == DeviceKind::kHost);
  CHECK(!device.name().empty());
  Stream stream(device);
  CHECK(stream.native() != nullptr && stream.native() != Stream(device).native());
  const DeviceBuffer buffer(device, 3, Dtype::kI32);
  const std::vector<std::int32_t> values{1, -2, 3};
  buffer.write(values, stream);
  CHECK(buffer.read<std::int32_t>(stream) == values);
  CHECK(buffer.data<std::int32_t>() != nullptr);
  CHECK(stream.done());
  stream.synchronize();
  device.synchronize();
}

void configuration() {
  const Config config;
  CHECK_EQ(config.heap_bytes, std::uint64_t{64} << 20);
  CHECK_EQ(config.deadlines.steady.count(), 30'000);
  CHECK(!config.one_shot_sentinel_bytes.has_value());
  Config none = config;
  none.heap_bytes = 0;
  CHECK_EQ(required_bytes(8, config) - required_bytes(8, none), config.heap_bytes);
}

/// Each rank writes its calls into a folder; a file in place of the folder is an error.
void dumps() {
  std::string folder = (std::filesystem::temp_directory_path() / "symmetra-dumps-XXXXXX").string();
  CHECK(mkdtemp(folder.data()) != nullptr);
  test::ranks(2, [&](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    const SymmetricBuffer buffer = communicator.symmetric<float>(5);
    communicator.all_reduce(buffer, stream);
    communicator.synchronize(stream);
    const std::string path = communicator.dump(folder);
    CHECK_EQ(path.rfind(folder + "/symmetra-group-", 0), std::size_t{0});
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    CHECK(text.find("\"enqueued\":1,") != std::string::npos);
    CHECK_THROWS(kSystem, communicator.dump(path));
    communicator.barrier();
    communicator.close();
    CHECK(std::filesystem::remove(path));
  });
  CHECK(std::filesystem::remove(folder));
}

/// Times of calls, for a communicator that times them, and the group as an observer finds it.
void observed() {
  test::ranks(2, [&](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    Config config = small();
    config.timing = true;
    const Communicator communicator = Communicator::open(bootstrap, device, config);
    const SymmetricBuffer buffer = communicator.symmetric<float>(5);
    for (int call = 0; call < 4; ++call) communicator.all_reduce(buffer, stream);
    communicator.synchronize(stream);
    communicator.barrier();
    const Timings timings = communicator.timings();
    CHECK_EQ(timings.calls.size(), std::size_t{1});
    CHECK_EQ(timings.unlabelled, std::uint64_t{0});
    const CallTimes& times = timings.calls[0];
    CHECK_EQ(times.operation, std::string("all-reduce"));
    CHECK_EQ(times.up_to_bytes, std::uint64_t{32});
    CHECK_EQ(times.calls, std::uint64_t{4});
    CHECK(times.algorithm.has_value() && times.busbw_gbps.value_or(0) > 0 && times.attributed == 1);
    CHECK(0 < times.median_us && times.median_us <= times.p99_us && times.p99_us <= times.total_us);
    const std::string seen = observe::look(static_cast<std::uint32_t>(getpid()));
    CHECK(seen.find("\"operation\":\"all-reduce\"") != std::string::npos && seen.find("\"verdict\"") != std::string::npos);
    communicator.barrier();
    communicator.close();
    const Communicator other = Communicator::open(bootstrap, device, small());
    CHECK_THROWS(kUnsupported, other.timings());
    other.close();
  });
  CHECK_THROWS(kInvalidArgument, observe::look(0xffff'fff0));
  CHECK_THROWS(kInvalidArgument, observe::dump_on(9, "nowhere"));
  CHECK(observe::dump_all("/nowhere/at/all").empty());
}

/// Bytes that a program writes outside a buffer, before or after it, are found at once and when the group closes.
void guards() {
  CHECK_EQ(Config().guard_bytes, std::uint64_t{0});
  for (const std::ptrdiff_t beside : {-1, 5}) {
    test::ranks(2, [&](Bootstrap& bootstrap) {
      const Device device = Device::host();
      const Stream stream(device);
      Config config = small();
      config.guard_bytes = 512;
      const Communicator communicator = Communicator::open(bootstrap, device, config);
      const SymmetricBuffer buffer = communicator.symmetric<float>(5);
      communicator.check_guards();
      communicator.barrier();
      if (communicator.rank() == 0) {
        const float one = 1;
        std::memcpy(static_cast<float*>(buffer.peer_data(1)) + beside, &one, sizeof one);
      }
      communicator.barrier();
      if (communicator.rank() == 1) {
        CHECK_THROWS(kInternal, communicator.check_guards());
        CHECK_THROWS(kInternal, communicator.close());
      } else {
        communicator.check_guards();
        communicator.close();
      }
    });
  }
  Config config = small();
  config.guard_bytes = 100;
  CHECK_THROWS(kInvalidArgument, required_bytes(2, config));
}

/// Symmetric, adopted, plain and device memory; in place and not; every algorithm that fits.
void all_reduce() {
  test::ranks(3, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    CHECK_EQ(communicator.world_size(), 3u);
    CHECK_EQ(communicator.rank(), bootstrap.rank());
    const std::size_t count = 70'001;
    const float own = static_cast<float>(communicator.rank() + 1);

    const SymmetricBuffer symmetric = communicator.symmetric<float>(count);
    CHECK(symmetric.read<float>(stream) == filled(count, 0));
    symmetric.write(filled(count, own), stream);
    communicator.all_reduce(symmetric, stream);
    communicator.synchronize(stream);
    CHECK(symmetric.read<float>(stream) == filled(count, 6));

    std::vector<float> input = filled(count, own), output = filled(count, 0);
    const Adopted from = communicator.adopt(input.data(), count), to = communicator.adopt(output.data(), count);
    CHECK(from.is_shared());
    CHECK(from.peer_data(communicator.rank()) == input.data());
    CHECK_THROWS(kInvalidArgument, from.peer_data(3));
    for (const Algorithm algorithm :
         {Algorithm::kOneShotLL, Algorithm::kOneShotSentinel, Algorithm::kTwoShotLL, Algorithm::kTwoShotSentinel,
          Algorithm::kTwoShotZeroCopy, Algorithm::kRing, Algorithm::kRecursiveDoubling}) {
      std::fill(output.begin(), output.end(), 0.0f);
      communicator.all_reduce(from, to, stream, algorithm);
      communicator.synchronize(stream);
      CHECK(output == filled(count, 6));
    }

    // By the addresses by which this rank reaches the memory already, and a slice alone.
    std::vector<void*> peers;
    for (std::size_t rank = 0; rank < 3; ++rank) peers.push_back(to.peer_data(rank));
    const Adopted mapped = communicator.adopt(output.data(), count, Dtype::kF32, peers);
    CHECK(mapped.is_shared());
    CHECK(mapped.peer_data(2) == peers[2]);
    std::fill(output.begin(), output.end(), 0.0f);
    communicator.all_reduce(Operand(from, 7, 1000), Operand(mapped, 11, 1000), stream, Algorithm::kTwoShotZeroCopy);
    communicator.synchronize(stream);
    CHECK(std::count(output.begin(), output.end(), 6.0f) == 1000 && output[10] == 0 && output[11] == 6 && output[1010] == 6);

    std::fill(output.begin(), output.end(), 0.0f);
    communicator.all_reduce(input.data(), output.data(), count, stream);
    communicator.synchronize(stream);
    CHECK(output == filled(count, 6));

    const DeviceBuffer plain(device, 5, Dtype::kI64);
    plain.write(std::vector<std::int64_t>{1, 2, 3, 4, std::int64_t{1} << 40}, stream);
    communicator.all_reduce(plain, stream);
    communicator.synchronize(stream);
    CHECK((plain.read<std::int64_t>(stream) == std::vector<std::int64_t>{3, 6, 9, 12, std::int64_t{3} << 40}));

    symmetric.write(filled(count, own), stream);
    communicator.all_reduce(Operand(symmetric, 10, 20), stream);
    communicator.all_reduce(symmetric, symmetric, stream, Algorithm::kAuto);
    communicator.synchronize(stream);
    const auto slice = symmetric.read<float>(stream);
    CHECK_EQ(slice[9], 6.0f);
    CHECK_EQ(slice[10], 18.0f);
    CHECK_EQ(slice[29], 18.0f);
    CHECK_EQ(slice[30], 6.0f);
    communicator.close();
  });
}

/// An engine's own stream, of which the library gets the handle, and the engine's own capture.
void streams_of_an_engine() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    Communicator communicator = Communicator::open(bootstrap, device, small());
    const float own = static_cast<float>(communicator.rank() + 1);
    const SymmetricBuffer sums = communicator.symmetric<float>(1000);
    std::vector<float> plain(10, own);
    std::optional<Stream> engines(device);
    const Stream stream = Stream::borrow(device, engines->native());
    CHECK(stream.native() == engines->native());
    sums.write(filled(1000, own), stream);
    communicator.all_reduce(sums, stream);
    communicator.synchronize(*engines);
    CHECK(sums.read<float>(stream) == filled(1000, 3));

    NativeCapture capture = engines->begin_capture();
    communicator.all_reduce(sums, stream);
    communicator.all_reduce(Operand(plain.data(), 10), stream);
    CHECK_THROWS(kInvalidArgument, stream.begin_capture());
    CHECK_THROWS(kUnsupported, sums.read<float>(stream));
    const NativeGraph graph = capture.end();
    CHECK_THROWS(kInvalidArgument, capture.end());
    communicator.barrier();
    CHECK(plain == filled(10, own) && sums.read<float>(stream) == filled(1000, 3));
    for (int launch = 0; launch < 3; ++launch) graph.launch(*engines);
    communicator.synchronize(stream);
    CHECK(plain == filled(10, 12) && sums.read<float>(stream) == filled(1000, 24));

    CHECK_THROWS(kInvalidArgument, graph.launch(Stream(Device::host())));
    CHECK_THROWS(kInvalidArgument, Stream::borrow(device, nullptr));
    CHECK_THROWS(kInvalidArgument, Stream::borrow(Device::host(), engines->native()));
    communicator.leave(stream);
    void* const stale = engines->native();
    engines.reset();
    CHECK_THROWS(kInvalidArgument, Stream::borrow(device, stale));
    CHECK_THROWS(kDevice, communicator.all_reduce(sums, stream));
    communicator.close();  // a rank that dropped its communicator would end the other one's call
  });
}

/// A pool of no type costs one registration: operands by offset, count and type, and by address, eager and in a graph.
void pools() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    Config config = small();
    config.registrations = 2;
    const Communicator communicator = Communicator::open(bootstrap, device, config);
    const std::size_t bytes = 1 << 16;
    const auto own = static_cast<std::int32_t>(communicator.rank() + 1);
    std::vector<std::int32_t> memory(bytes / 4, own);
    std::int32_t* const address = memory.data();
    const Adopted pool = communicator.adopt_bytes(address, bytes);
    CHECK_EQ(pool.count(), bytes);
    const auto algorithm = Algorithm::kTwoShotZeroCopy;
    communicator.all_reduce(Operand(pool, 400, 10, Dtype::kI32), stream, algorithm);
    communicator.all_reduce(Operand(address + 200, 10), stream, algorithm);
    const Graph graph = stream.capture([&](Capture& capture) {
      for (std::size_t number = 0; number < 50; ++number)
        communicator.all_reduce(Operand(address + 300 * number, 1 + number), capture, algorithm);
    });
    graph.register_pointers();
    communicator.synchronize(stream);
    for (std::size_t at = 0; at < memory.size(); ++at) {
      CHECK_EQ(memory[at], (at >= 100 && at < 110) || (at >= 200 && at < 210) ? 3 : own);
    }
    memory.assign(memory.size(), own);
    communicator.barrier();
    graph.launch(stream);
    communicator.synchronize(stream);
    for (std::size_t at = 0; at < memory.size(); ++at) CHECK_EQ(memory[at], at < 15'000 && at % 300 <= at / 300 ? 3 : own);

    const auto doubles = Operand(pool, 64, 3, Dtype::kF64);
    communicator.all_reduce(doubles, stream);
    const auto differs = Operand(address + 8 * own, 8).through_scratch();
    communicator.all_reduce(differs, stream);
    CHECK_THROWS(kUnsupported, communicator.all_reduce(differs, stream, algorithm));
    CHECK_THROWS(kInvalidArgument, communicator.all_reduce(Operand(pool, 4, 3, Dtype::kF64), stream));
    CHECK_THROWS(kInvalidArgument, communicator.all_reduce(Operand(pool, bytes - 16, 3, Dtype::kF64), stream));
    CHECK_THROWS(kInvalidArgument, communicator.all_reduce(Operand(pool, 8, SIZE_MAX / 8, Dtype::kF64), stream));
    CHECK_THROWS(kInvalidArgument, communicator.all_reduce(Operand(pool, 8, 1, static_cast<Dtype>(99)), stream));
    communicator.synchronize(stream);

    std::vector<std::int32_t> other(4);
    const Error full = CHECK_THROWS(kOutOfMemory, communicator.adopt(other.data(), 4));
    CHECK(std::string(full.what()).find("Config::registrations is 2") != std::string::npos);
    communicator.close();
  });
}

/// Bound once and enqueued often, on a stream and in a graph, among ordinary calls and after its operands are dropped.
void bound() {
  test::ranks(3, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    const std::size_t count = 70'001;
    const float own = static_cast<float>(communicator.rank() + 1);
    const SymmetricBuffer input = communicator.symmetric<float>(count);
    std::optional<SymmetricBuffer> output(communicator.symmetric<float>(count));
    input.write(filled(count, own), stream);

    BoundAllReduce bound = communicator.bind_all_reduce(input, *output);
    BoundAllReduce largest = communicator.bind_all_reduce(Operand(input, 5, 7), Operand(input, 5, 7), Reduction::kMax);
    const Graph graph = stream.capture([&](Capture& capture) { bound.enqueue(capture); });
    for (int again = 0; again < 5; ++again) {
      output->write(filled(count, 0), stream);
      if (again < 3) {
        bound.enqueue(stream);
      } else {
        graph.launch(stream);
      }
      communicator.synchronize(stream);
      CHECK(output->read<float>(stream) == filled(count, 6));
    }
    largest.enqueue(stream);
    if (communicator.rank() == 0) {
      largest.enqueue(stream);
    } else {
      communicator.all_reduce(Operand(input, 5, 7), stream, Reduction::kMax);
    }
    communicator.synchronize(stream);
    CHECK_EQ(input.read<float>(stream)[11], 3.0f);
    CHECK_EQ(input.read<float>(stream)[12], own);

    std::vector<std::int32_t> plain(9, 1);
    const BoundAllReduce by_address = communicator.bind_all_reduce(Operand(plain.data(), 9), Operand(plain.data(), 9));
    by_address.enqueue(stream);
    communicator.synchronize(stream);
    CHECK(plain == std::vector<std::int32_t>(9, 3));
    const std::vector<std::int32_t> ones(9, 1);
    communicator.bind_all_reduce({ones.data(), 9}, {plain.data(), 9}).enqueue(stream);
    communicator.synchronize(stream);
    CHECK(plain == std::vector<std::int32_t>(9, 3) && ones == std::vector<std::int32_t>(9, 1));

    CHECK_THROWS(kInvalidArgument, communicator.bind_all_reduce(input, Operand(*output, 0, 1)));
    CHECK_THROWS(kInvalidArgument, communicator.bind_all_reduce(input, Operand(plain.data(), 9)));
    CHECK_THROWS(kUnsupported,
                 communicator.bind_all_reduce(Operand(plain.data(), 9), Operand(plain.data(), 9), Algorithm::kTwoShotZeroCopy));
    output.reset();
    bound.enqueue(stream);
    communicator.synchronize(stream);
    const BoundAllReduce moved = std::move(bound);
    CHECK_THROWS(kInvalidArgument, bound.enqueue(stream));
    communicator.close();
    CHECK_THROWS(kClosed, moved.enqueue(stream));
  });
}

/// Every reduction, by itself and with an algorithm.
void reductions() {
  test::ranks(3, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    const std::size_t count = 77;
    const std::vector<std::uint8_t> input(count, static_cast<std::uint8_t>(200 + communicator.rank()));
    const auto reduced = [&](AllReduceOptions options) {
      std::vector<std::uint8_t> output(count);
      communicator.all_reduce(input.data(), output.data(), count, stream, options);
      communicator.synchronize(stream);
      CHECK(output == std::vector<std::uint8_t>(count, output[0]));
      return static_cast<int>(output[0]);
    };
    for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kOneShotLL, Algorithm::kTwoShotLL}) {
      CHECK_EQ(reduced(algorithm), 603 % 256);
      CHECK_EQ(reduced({Reduction::kProduct, algorithm}), 200 * 201 * 202 % 256);
      CHECK_EQ(reduced({Reduction::kMin, algorithm}), 200);
      CHECK_EQ(reduced({Reduction::kMax, algorithm}), 202);
      CHECK_EQ(reduced({Reduction::kAverage, algorithm}), 201);
    }
    CHECK_EQ(reduced(Reduction::kMax), 202);
    communicator.close();
  });
}

/// Half types and 8-bit floats cross as bits.
void narrow_types() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    const std::uint16_t one_bf16 = 0x3F80, two_bf16 = 0x4000, one_f16 = 0x3C00, two_f16 = 0x4000;
    std::vector<std::uint16_t> values(9, one_bf16);
    communicator.all_reduce(Operand(values.data(), 9, Dtype::kBF16), stream);
    communicator.synchronize(stream);
    CHECK(values == std::vector<std::uint16_t>(9, two_bf16));
    values.assign(9, one_f16);
    communicator.all_reduce(Operand(values.data(), 9, Dtype::kF16), stream);
    communicator.synchronize(stream);
    CHECK(values == std::vector<std::uint16_t>(9, two_f16));
    // The largest quantised value of every group, which is exact when the other values are zero.
    const struct {
      Codec codec;
      std::uint16_t largest, twice;
    } codecs[] = {
        {Codec::kFp8, 0x43E0, 0x4460}, {Codec::kInt8, 0x42FE, 0x437E}, {Codec::kInt6, 0x41F8, 0x4278}, {Codec::kInt4, 0x40E0, 0x4160}};
    for (const auto& [codec, largest, twice] : codecs) {
      values.assign(700, communicator.rank() == 0 ? largest : 0);
      const Operand operand(values.data(), values.size(), Dtype::kBF16);
      communicator.all_reduce(operand, stream, codec);
      communicator.synchronize(stream);
      CHECK(values == std::vector<std::uint16_t>(700, largest));
      communicator.bind_all_reduce(operand, operand, {Reduction::kSum, Algorithm::kTwoShotSentinel, codec}).enqueue(stream);
      communicator.synchronize(stream);
      CHECK(values == std::vector<std::uint16_t>(700, twice));
      CHECK_THROWS(kUnsupported, communicator.all_reduce(operand, stream, {Reduction::kMax, Algorithm::kAuto, codec}));
    }
    // 16 + 2 is 18; the largest value, twice, saturates.
    std::vector<std::uint8_t> bytes(9, bootstrap.rank() == 0 ? 0x58 : 0x40);
    communicator.all_reduce(Operand(bytes.data(), 9, Dtype::kF8E4M3), stream);
    communicator.synchronize(stream);
    CHECK(bytes == std::vector<std::uint8_t>(9, 0x59));
    bytes.assign(9, 0x7B);
    communicator.all_reduce(Operand(bytes.data(), 9, Dtype::kF8E5M2), stream);
    communicator.synchronize(stream);
    CHECK(bytes == std::vector<std::uint8_t>(9, 0x7B));
    communicator.close();
  });
}

/// Every collective of a communicator. environment_test.cc has those of parallel groups.
void exchanges() {
  test::ranks(3, [](Bootstrap& bootstrap) {
    const Communicator communicator = Communicator::open(bootstrap, Device::host(), small());
    test::Round<float, Communicator>(communicator).check(communicator);
    communicator.close();
  });
}

/// Messages between two of three ranks, many of a pair, of several types, eager and in a graph; errors.
void pairs() {
  test::ranks(3, [](Bootstrap& bootstrap) {
    using Message = Communicator::Message;
    const Device device = Device::host();
    const Stream stream(device);
    Config config = small();
    CHECK_EQ(Config().pair_bytes, std::uint64_t{512} << 10);
    config.pair_bytes = 4096;
    const Communicator communicator = Communicator::open(bootstrap, device, config);
    const std::size_t rank = communicator.rank(), peer = 2 - rank, count = 3000;
    const SymmetricBuffer out = communicator.symmetric<float>(count), into = communicator.symmetric<float>(count);
    const SymmetricBuffer whole = communicator.symmetric<std::int64_t>(9);
    const float own = static_cast<float>(rank) + 1;
    out.write(filled(count, own), stream);
    whole.write(std::vector<std::int64_t>(9, static_cast<std::int64_t>(rank) - 5), stream);
    const std::vector<Message> messages = {Message::send(Operand(out, 0, 7), peer),
                                           Message::send(Operand(out, 7, count - 7), peer),
                                           Message::send(Operand(whole, 0, 3), peer),
                                           Message::receive(Operand(into, count - 7, 7), peer),
                                           Message::receive(Operand(into, 0, count - 7), peer),
                                           Message::receive(Operand(whole, 3, 3), peer)};
    const auto check = [&] {
      communicator.synchronize(stream);
      CHECK(into.read<float>(stream) == filled(count, static_cast<float>(peer) + 1));
      CHECK_EQ(whole.read<std::int64_t>(stream)[4], static_cast<std::int64_t>(peer) - 5);
    };
    // The rank between makes no call.
    if (rank != 1) {
      communicator.pairs(messages, stream);
      check();
      const Graph graph = stream.capture([&](Capture& capture) { communicator.pairs(messages, capture); });
      for (int launch = 0; launch < 3; ++launch) {
        into.write(filled(count, 0), stream);
        graph.launch(stream);
        check();
      }
    }
    communicator.pairs({Message::send(Operand(out, 0, 2), rank), Message::receive(Operand(into, 0, 2), rank)}, stream);
    communicator.synchronize(stream);
    CHECK((into.read<float>(stream)[0] == own && into.read<float>(stream)[1] == own));
    CHECK_THROWS(kInvalidArgument, communicator.pairs({Message::send(out, 3)}, stream));
    CHECK_THROWS(kInvalidArgument, communicator.pairs({Message::send(out, rank)}, stream));
    CHECK_THROWS(kInvalidArgument, communicator.pairs({Message::send(out, peer), Message::receive(Operand(out, 1, 2), peer)}, stream));
    // No rank fails before all have come so far.
    communicator.all_reduce(out, into, stream);
    if (rank == 0) {
      communicator.pairs({Message::send(Operand(out, 0, 3), 2)}, stream);
    } else if (rank == 2) {
      communicator.pairs({Message::receive(Operand(into, 0, 4), 0)}, stream);
    }
    // All ranks learn of lengths that differ.
    std::string said;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(40);
    while (said.empty() && std::chrono::steady_clock::now() < deadline) {
      try {
        communicator.synchronize(stream);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::kMismatch);
        said = error.what();
      }
    }
    CHECK(said.find("12 bytes") != std::string::npos && said.find("16 bytes") != std::string::npos);
  });
}

/// Beside the stream, awaited on another, dropped, captured; plain and symmetric memory.
void low_contention() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device), other(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    const std::size_t count = 5000;
    const float own = static_cast<float>(communicator.rank()) + 1;
    const SymmetricBuffer shard = communicator.symmetric<float>(count);
    const DeviceBuffer all(device, 2 * count, Dtype::kF32);
    shard.write(filled(count, own), stream);
    const std::vector<float> both = joined(filled(count, 1), filled(count, 2));
    {
      const Pending pending = communicator.low_contention_all_gather(shard, all, stream);
      pending.wait(other);
      CHECK(all.read<float>(other) == both);
    }
    std::vector<float> part = filled(count, 0);
    { const Pending dropped = communicator.low_contention_reduce_scatter(all, Operand(part.data(), count), Reduction::kSum, stream); }
    communicator.synchronize(stream);
    CHECK(part == filled(count, 2 * own));

    const auto gather = [&] {
      return stream.capture([&](Capture& capture) {
        Pending pending = communicator.low_contention_all_gather({std::as_const(part).data(), count}, all, capture);
        pending.wait(capture);
        CHECK_THROWS(kInvalidArgument, pending.wait(other));
      });
    };
    communicator.reserve_workspace(2 * count * sizeof(float));
    const Graph graph = gather();
    graph.launch(stream);
    communicator.synchronize(stream);
    CHECK(all.read<float>(stream) == joined(filled(count, 2), filled(count, 4)));

    const DeviceBuffer large(device, 4 * count, Dtype::kF32), half(device, 2 * count, Dtype::kF32);
    CHECK_THROWS(kUnsupported, stream.capture([&](Capture& capture) {
      const Pending refused = communicator.low_contention_reduce_scatter(large, half, Reduction::kMax, capture);
    }));
    CHECK_THROWS(kInvalidArgument, communicator.low_contention_all_gather(all, shard, stream));
    communicator.barrier();
    communicator.close();
  });
}

/// Graphs keep their operands: buffers are destroyed before the launch.
void graphs() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    const std::size_t count = 50'000;
    std::vector<float> plain = filled(count, 1), out = filled(count, 0);
    const Graph graph = [&] {
      const SymmetricBuffer buffer = communicator.symmetric<float>(64);
      buffer.write(filled(64, 1), stream);
      return stream.capture([&](Capture& capture) {
        communicator.all_reduce(buffer, capture);
        buffer.signals().barrier(2, capture);
        communicator.all_reduce(Operand(plain.data(), count), Operand(out.data(), count), capture);
      });
    }();
    CHECK_EQ(out[0], 0.0f);
    graph.register_pointers();
    // Another allocation must not get the space of the buffer that the graph holds.
    const SymmetricBuffer other = communicator.symmetric<float>(64);
    for (int launch = 0; launch < 3; ++launch) graph.launch(stream);
    communicator.all_reduce(other, stream);
    communicator.synchronize(stream);
    CHECK(out == filled(count, 2));
    CHECK(other.read<float>(stream) == filled(64, 0));
    communicator.barrier();
    communicator.close();
  });
}

void signals() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device, small());
    const SymmetricBuffer buffer = communicator.symmetric<std::int32_t>(4);
    const SignalPad pad = buffer.signals();
    const std::size_t peer = 1 - communicator.rank();
    const device::SignalPad view = pad.view();
    CHECK_EQ(view.world, 2u);
    CHECK_EQ(view.rank, communicator.rank());
    CHECK(view.pads[0] != view.pads[1]);
    CHECK(view.sent != view.awaited);
    CHECK_EQ(buffer.peer_table()->address[communicator.rank()],
             static_cast<void*>(static_cast<char*>(buffer.data()) - buffer.offset_bytes()));
    CHECK(buffer.peer_data(communicator.rank()) == buffer.data());
    if (communicator.rank() == 0) {
      buffer.write(std::vector<std::int32_t>{1, 2, 3, 4}, stream);
      pad.put(peer, 3, stream);
      pad.wait(peer, 4, stream);
    } else {
      pad.wait(peer, 3, stream);
      communicator.synchronize(stream);
      CHECK_EQ(static_cast<const std::int32_t*>(buffer.peer_data(0))[3], 4);
      pad.put(peer, 4, stream);
    }
    pad.barrier(0, stream);
    communicator.synchronize(stream);
    communicator.close();
  });
}

void splits() {
  test::ranks(4, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator world = Communicator::open(bootstrap, device, small());
    const std::size_t rank = world.rank();
    std::uint8_t own = static_cast<std::uint8_t>(10 + rank), all[4];
    world.all_gather_bytes(&own, all, 1);
    CHECK(std::memcmp(all, "\x0a\x0b\x0c\x0d", 4) == 0);
    const auto color = rank == 3 ? std::nullopt : std::optional<std::uint32_t>(rank % 2);
    const std::optional<Communicator> half = world.split(color, -static_cast<std::int32_t>(rank));
    CHECK_EQ(half.has_value(), rank != 3);
    if (half) {
      CHECK_EQ(half->world_size(), rank == 1 ? 1u : 2u);
      CHECK_EQ(half->rank(), rank == 0 ? 1u : 0u);
      std::vector<float> values = filled(3, static_cast<float>(rank));
      half->all_reduce(Operand(values.data(), 3), stream);
      half->synchronize(stream);
      CHECK(values == filled(3, rank == 1 ? 1 : 2));
      half->close();
    }
    const std::vector<Range> ranges = world.explain(Dtype::kF32, true);
    CHECK_EQ(ranges.back().up_to_bytes, ~std::uint64_t{0});
    CHECK(ranges.back().algorithm == Algorithm::kTwoShotZeroCopy);
    CHECK(!ranges.back().reason.empty());
    const std::vector<Range> norms = world.explain_norm(Dtype::kF32, 64, true);
    CHECK(norms.front().algorithm == Algorithm::kOneShotSentinel && norms.front().reason == "one kernel sums and norms");
    CHECK(norms.back().algorithm == ranges.back().algorithm && norms.back().up_to_bytes == ranges.back().up_to_bytes);
    const QuantisedForm micro{Scaling::kMx, Narrow::kE4M3, 32};
    const std::vector<Range> placed = world.explain_norm(Dtype::kF32, 64, micro, true, true);
    const std::vector<Range> unplaced = world.explain_norm(Dtype::kF32, 64, micro, true, false);
    CHECK(placed.size() == norms.size() && placed.back().algorithm == norms.back().algorithm);
    CHECK(unplaced.back().algorithm == Algorithm::kTwoShotSentinel && unplaced.back().up_to_bytes == ~std::uint64_t{0});
    CHECK_THROWS(kInvalidArgument, world.explain_norm(Dtype::kF32, 65, micro, true, true));
    CHECK(world.explain_norm(Dtype::kF32, 65, micro, true, false, 96).back().algorithm == Algorithm::kTwoShotSentinel);
    CHECK_THROWS(kInvalidArgument, world.explain_norm(Dtype::kF32, 65, micro, true, true, 64));
    const QuantisedForm nowhere{Scaling::kMx, Narrow::kE4M3, 32, ScaleLayout::kColumns};
    CHECK_THROWS(kInvalidArgument, world.explain_norm(Dtype::kF32, 64, nowhere, true, true));
    CHECK_THROWS(kUnsupported, world.explain_norm(Dtype::kF32, 1 << 20, {Scaling::kPerToken, Narrow::kI8}, true, false));
    const std::vector<Range> gathered = world.explain_scattered_norm(Dtype::kF32, 64, false, true, true);
    const std::vector<Range> scattered = world.explain_scattered_norm(Dtype::kF32, 64, false, true, false);
    CHECK(gathered.front().algorithm == Algorithm::kTwoShotSentinel && gathered.back().algorithm == Algorithm::kTwoShotZeroCopy);
    CHECK(scattered.front().algorithm == Algorithm::kTwoShotSentinel && scattered.back().algorithm == Algorithm::kAuto);
    const std::vector<Range> quantised = world.explain_scattered_norm(Dtype::kF32, 64, true, true, false);
    CHECK(quantised.size() == 2 && quantised.front().algorithm == Algorithm::kTwoShotSentinel && !quantised.front().reason.empty());
    world.close();
  });
}

/// The sum over a group of the values of its ranks.
float sum(const Coordinator& group, float own) {
  const Stream stream(group.device());
  std::vector<float> values = filled(5, own);
  group.all_reduce(Operand(values.data(), 5), stream);
  group.synchronize(stream);
  return values.back();
}

/// Runs `body` as every rank of a world of threads, each with a bootstrap that it can move.
void giving(std::size_t world, const std::function<void(std::unique_ptr<Bootstrap>)>& body) {
  std::vector<std::thread> threads;
  for (auto& owned : bootstrap::threads(world)) {
    threads.emplace_back([&body, bootstrap = std::move(owned)]() mutable { body(std::move(bootstrap)); });
  }
  for (std::thread& thread : threads) thread.join();
}

/// A bootstrap of the caller's over one of the library's.
class Wrapped : public Bootstrap {
 public:
  explicit Wrapped(std::unique_ptr<Bootstrap> inner) : inner_(std::move(inner)) {}
  std::size_t rank() const override { return inner_->rank(); }
  std::size_t world_size() const override { return inner_->world_size(); }
  void all_gather(const void* send, void* receive, std::size_t bytes, Deadline deadline) override {
    inner_->all_gather(send, receive, bytes, deadline);
  }

 private:
  std::unique_ptr<Bootstrap> inner_;
};

/// Groups that are opened alone, by a bootstrap of the library's or the caller's, their parts, and their ends.
void groups_alone() {
  for (const bool wrapped : {false, true}) {
    giving(4, [wrapped](std::unique_ptr<Bootstrap> bootstrap) {
      if (wrapped) bootstrap = std::make_unique<Wrapped>(std::move(bootstrap));
      GroupConfig config;
      config.communicator = small();
      const Coordinator group = Coordinator::open(std::move(bootstrap), Device::host(), config);
      const std::size_t rank = group.rank();
      CHECK_EQ(group.name(), "group");
      CHECK_EQ(group.world_size(), 4u);
      CHECK_EQ(sum(group, static_cast<float>(1 << rank)), 15.0f);
      const auto color = rank == 3 ? std::nullopt : std::optional<std::uint32_t>(rank % 2);
      const std::optional<Coordinator> part = group.split(color, -static_cast<std::int32_t>(rank));
      CHECK_EQ(part.has_value(), rank != 3);
      group.close();
      CHECK_THROWS(kClosed, group.close());
      CHECK_THROWS(kClosed, group.split(0));
      if (!part) return;
      CHECK_EQ(part->world_size(), rank == 1 ? 1u : 2u);
      CHECK_EQ(part->rank(), rank == 0 ? 1u : 0u);
      CHECK_EQ(sum(*part, static_cast<float>(1 << rank)), rank == 1 ? 2.0f : 5.0f);
      part->depart();
      CHECK_THROWS(kClosed, part->check());
    });
  }
  giving(2, [](std::unique_ptr<Bootstrap> bootstrap) {
    GroupConfig config;
    config.communicator = small();
    config.communicator.heap_bytes += bootstrap->rank();
    CHECK_EQ(CHECK_THROWS(kMismatch, Coordinator::open(std::move(bootstrap), Device::host(), config)).rank(), 1);
  });
  CHECK_THROWS(kInvalidArgument, Coordinator::open(std::unique_ptr<Bootstrap>(), Device::host()));
  test::ranks(1, [](Bootstrap& bootstrap) {
    EnvConfig config;
    config.communicator = small();
    const Environment environment = Environment::init(bootstrap, config);
    CHECK_THROWS(kUnsupported, environment.tp().close());
    CHECK_THROWS(kUnsupported, environment.tp().depart());
    environment.tp().split(0)->close();
    environment.close();
  });
}

/// The ready-made bootstraps as a Bootstrap, and the ways to meet.
void bootstraps() {
  char directory[] = "/tmp/symmetra-api-XXXXXX";
  CHECK(mkdtemp(directory) != nullptr);
  const std::string meeting = std::string(directory) + "/meet";
  const std::string id_text = [&] {
    bootstrap::UniqueId id = bootstrap::UniqueId::listen();
    const std::string text = id.text();
    auto meet = [&](std::size_t rank, bootstrap::UniqueId mine) {
      const auto tcp = bootstrap::tcp(std::move(mine), rank, 2);
      const std::uint32_t own = 7 + static_cast<std::uint32_t>(rank);
      std::uint32_t all[2];
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      tcp->all_gather(&own, all, sizeof own, deadline);
      CHECK_EQ(all[0], 7u);
      CHECK_EQ(all[1], 8u);
      tcp->barrier(deadline);
    };
    std::thread other([&] { meet(1, bootstrap::UniqueId::parse(text)); });
    meet(0, std::move(id));
    other.join();
    return text;
  }();
  CHECK(id_text.find('/') != std::string::npos);
  auto meet = [&](std::size_t rank) {
    const auto local = bootstrap::local(meeting, rank, 2);
    const Communicator communicator = Communicator::open(*local, Device::host(), small());
    CHECK_EQ(communicator.rank(), rank);
    communicator.close();
  };
  std::thread other([&] { meet(1); });
  meet(0);
  other.join();
  std::system(("rm -r " + std::string(directory)).c_str());
}

}  // namespace

int main(int count, char** names) {
  const struct {
    const char* name;
    void (*run)();
  } cases[] = {{"types", types},
               {"devices", devices},
               {"configuration", configuration},
               {"guards", guards},
               {"dumps", dumps},
               {"observed", observed},
               {"all_reduce", all_reduce},
               {"streams_of_an_engine", streams_of_an_engine},
               {"pools", pools},
               {"bound", bound},
               {"exchanges", exchanges},
               {"pairs", pairs},
               {"reductions", reductions},
               {"narrow_types", narrow_types},
               {"graphs", graphs},
               {"signals", signals},
               {"norms", test::norms},
               {"layer_norms", test::layer_norms},
               {"refused_norms", test::refused_norms},
               {"quantised_norms", test::quantised_norms},
               {"refused_formats", test::refused_formats},
               {"splits", splits},
               {"groups_alone", groups_alone},
               {"bootstraps", bootstraps},
               {"low_contention", low_contention}};
  for (const auto& test : cases) {
    if (count > 1 && std::none_of(names + 1, names + count, [&](const char* name) { return std::strcmp(name, test.name) == 0; })) continue;
    test.run();
    std::printf("%s ok\n", test.name);
    std::fflush(stdout);
  }
}
