// All-reduce and norm by the public API: every output equals the definition of the norm, and bad input is an error.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "ranks.hpp"

namespace test {

/// Adds neighbours, then neighbouring pairs and so on: a power of two of values.
inline float tree(std::vector<float> values) {
  for (std::size_t count = values.size(); count > 1; count /= 2) {
    for (std::size_t i = 0; i < count / 2; ++i) values[i] = values[2 * i] + values[2 * i + 1];
  }
  return values[0];
}

/// The rows of x, normed: squares in packets of four, packets in 1024 columns.
inline std::vector<float> normed(const std::vector<float>& x, const std::vector<float>& weight, const symmetra::RmsNorm& norm) {
  std::vector<float> result;
  for (std::size_t row = 0; row < x.size(); row += weight.size()) {
    std::vector<float> columns(1024, 0.0f);
    for (std::size_t packet = 0; 4 * packet < weight.size(); ++packet) {
      std::vector<float> squares(4, 0.0f);
      for (std::size_t i = 4 * packet; i < weight.size() && i < 4 * packet + 4; ++i) squares[i % 4] = x[row + i] * x[row + i];
      columns[packet % 1024] += tree(squares);
    }
    const float mean = tree(columns) / static_cast<float>(weight.size());
    const float scale = 1.0f / std::sqrt(mean + norm.epsilon);
    for (std::size_t i = 0; i < weight.size(); ++i) result.push_back(x[row + i] * (weight[i] + norm.weight_offset) * scale);
  }
  return result;
}

inline bool same(const std::vector<float>& found, const std::vector<float>& right) {
  return found.size() == right.size() && std::memcmp(found.data(), right.data(), 4 * found.size()) == 0;
}

/// Two rows of five elements for each of three ranks: normed where they are, and gathered.
inline void scattered(const symmetra::Communicator& communicator, const symmetra::Stream& stream, const symmetra::RmsNorm& norm) {
  using namespace symmetra;
  constexpr std::size_t kOwn = 10, kAll = 30;
  const std::vector<float> weights{0.5f, -1.0f, 0.25f, 2.0f, 0.0f};
  std::vector<float> own(kAll), x(kAll);
  for (std::size_t i = 0; i < kAll; ++i) {
    own[i] = static_cast<float>(i % 7 + communicator.rank());
    x[i] = static_cast<float>(i % 7 * 3 + 3) + static_cast<float>(i) / 8.0f;
  }
  const auto share = [&](const std::vector<float>& all) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(communicator.rank() * kOwn);
    return std::vector<float>(first, first + kOwn);
  };
  std::vector<float> before(kAll);
  for (std::size_t i = 0; i < kAll; ++i) before[i] = static_cast<float>(i) / 8.0f;
  const Device device = communicator.device();
  const DeviceBuffer input(device, kAll, Dtype::kF32), output(device, kAll, Dtype::kF32), weight(device, 5, Dtype::kF32);
  const DeviceBuffer residual(device, kOwn, Dtype::kF32), normed_here(device, kOwn, Dtype::kF32);
  input.write(own, stream);
  weight.write(weights, stream);
  RowNorm rows(input, weight, norm);
  rows.residual = residual;
  rows.residual_out = residual;
  rows.output = normed_here;
  residual.write(share(before), stream);
  communicator.reduce_scatter_norm(rows, stream);
  communicator.synchronize(stream);
  CHECK(same(residual.read<float>(stream), share(x)));
  CHECK(same(normed_here.read<float>(stream), share(normed(x, weights, norm))));
  rows.output = output;
  residual.write(share(before), stream);
  communicator.reduce_scatter_norm_all_gather(rows, stream);
  communicator.synchronize(stream);
  CHECK(same(residual.read<float>(stream), share(x)));
  CHECK(same(output.read<float>(stream), normed(x, weights, norm)));
}

/// Plain and symmetric memory, eager and in a graph, in place and not.
inline void norms() {
  ranks(3, [](symmetra::Bootstrap& bootstrap) {
    using namespace symmetra;
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device);
    constexpr std::size_t kHidden = 4117, kRows = 3, kCount = kHidden * kRows;
    const auto value = [](std::size_t rank, std::size_t i) { return static_cast<float>((i * 37 + rank * 11) % 101) / 64.0f - 0.75f; };
    std::vector<float> own(kCount), before(kCount), sum(kCount), weights(kHidden);
    for (std::size_t i = 0; i < kCount; ++i) {
      own[i] = value(communicator.rank(), i);
      before[i] = value(9, i) / 3.0f;
      sum[i] = value(0, i) + value(1, i) + value(2, i) + before[i];
    }
    for (std::size_t i = 0; i < kHidden; ++i) weights[i] = value(5, i);
    const SymmetricBuffer input = communicator.symmetric<float>(kCount);
    const DeviceBuffer residual(device, kCount, Dtype::kF32), weight(device, kHidden, Dtype::kF32), output(device, kCount, Dtype::kF32);
    weight.write(weights, stream);

    RmsNorm gemma;
    gemma.weight_offset = 1.0f;
    RowNorm rows(input, weight, gemma);
    rows.residual = residual;
    rows.residual_out = residual;
    rows.output = output;
    const Graph graph = stream.capture([&](const Capture& capture) { communicator.all_reduce_norm(rows, capture); });
    graph.register_pointers();
    for (const bool captured : {false, true}) {
      input.write(own, stream);
      residual.write(before, stream);
      if (captured) {
        graph.launch(stream);
      } else {
        communicator.all_reduce_norm(rows, stream);
      }
      communicator.synchronize(stream);
      CHECK(same(residual.read<float>(stream), sum));
      CHECK(same(output.read<float>(stream), normed(sum, weights, gemma)));
    }

    scattered(communicator, stream, gemma);

    RowNorm in_place(input, weight);
    in_place.output = input;
    in_place.algorithm = Algorithm::kOneShotSentinel;
    input.write(own, stream);
    communicator.all_reduce_norm(in_place, stream);
    communicator.synchronize(stream);
    std::vector<float> bare(kCount);
    for (std::size_t i = 0; i < kCount; ++i) bare[i] = value(0, i) + value(1, i) + value(2, i);
    CHECK(same(input.read<float>(stream), normed(bare, weights, RmsNorm())));

    RowNorm padded(Operand(input, 0, 8), ConstOperand(weight.data(), 4, Dtype::kF32));
    padded.output = Operand(input, 16, 12);
    padded.width = 6;
    std::vector<float> wide(own);
    std::vector<float> four(weights.begin(), weights.begin() + 4), eight(bare.begin(), bare.begin() + 8);
    input.write(wide, stream);
    communicator.all_reduce_norm(padded, stream);
    communicator.synchronize(stream);
    const std::vector<float> found = input.read<float>(stream), right = normed(eight, four, RmsNorm());
    for (std::size_t i = 0; i < 12; ++i) CHECK_EQ(found[16 + i], i % 6 < 4 ? right[i / 6 * 4 + i % 6] : 0.0f);
    communicator.close();
  });
}

/// Every error names the value and the limit.
inline void refused_norms() {
  ranks(2, [](symmetra::Bootstrap& bootstrap) {
    using namespace symmetra;
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device);
    const DeviceBuffer rows(device, 8, Dtype::kF32), weight(device, 4, Dtype::kF32), doubles(device, 8, Dtype::kF64);
    const auto says = [](const Error& error, const char* words) {
      if (std::strstr(error.what(), words) == nullptr) fail(__FILE__, __LINE__, std::string(words) + " is not in: " + error.what());
    };
    RowNorm call(rows, weight);
    says(CHECK_THROWS(kInvalidArgument, communicator.all_reduce_norm(call, stream)), "the number of outputs is 0");
    call.output = doubles;
    says(CHECK_THROWS(kInvalidArgument, communicator.all_reduce_norm(call, stream)), "the output's type is f64, but the input's is f32");
    call.output = Operand(rows.data(), 7, Dtype::kF32);
    says(CHECK_THROWS(kInvalidArgument, communicator.all_reduce_norm(call, stream)), "the output's length is 7");
    call.output = rows;
    call.width = 3;
    says(CHECK_THROWS(kInvalidArgument, communicator.all_reduce_norm(call, stream)), "the width of an output row is 3");
    call.width = 0;
    for (const float epsilon : {-1.0f, std::numeric_limits<float>::quiet_NaN()}) {
      call.norm.epsilon = epsilon;
      says(CHECK_THROWS(kInvalidArgument, communicator.all_reduce_norm(call, stream)), "epsilon is");
    }
    RowNorm uneven(Operand(rows.data(), 4, Dtype::kF32), weight);
    uneven.output = uneven.residual_out = Operand(rows.data(), 4, Dtype::kF32);
    for (const bool gathers : {false, true}) {
      const auto shared = [&] {
        gathers ? communicator.reduce_scatter_norm_all_gather(uneven, stream) : communicator.reduce_scatter_norm(uneven, stream);
      };
      says(CHECK_THROWS(kInvalidArgument, shared()), "the number of rows is 1, but it must be a multiple of the world size, 2");
    }
    RowNorm wide(doubles, weight);
    wide.output = doubles;
    says(CHECK_THROWS(kUnsupported, communicator.all_reduce_norm(wide, stream)), "all-reduce-norm of f64");
    RowNorm heavy(rows, doubles);
    heavy.output = rows;
    says(CHECK_THROWS(kUnsupported, communicator.all_reduce_norm(heavy, stream)), "a weight of f64");
    RowNorm over(rows, weight);
    over.residual_out = rows;
    over.residual = rows;
    over.algorithm = Algorithm::kTwoShotLL;
    says(CHECK_THROWS(kUnsupported, communicator.all_reduce_norm(over, stream)), "ask for an output");
    call.norm.epsilon = 1e-6f;
    communicator.all_reduce_norm(call, stream);
    communicator.synchronize(stream);
    communicator.close();
  });
}

}  // namespace test
