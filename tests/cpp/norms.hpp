// Norms by the public API: every operand reaches the library, and bad input is an error. tests/fuzz compares values with a model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ranks.hpp"

namespace test {

/// Rows of 4 elements of equal size: each normed element is its sign times the weight. The sign of a row is that of -1 to its
/// number.
struct SignedRows {
  static constexpr std::size_t kHidden = 4, kRows = 3;

  /// `size` with the sign of the row, in rows `first` to `first + rows`.
  static std::vector<float> of(float size, std::size_t rows = kRows, std::size_t first = 0) {
    std::vector<float> all;
    for (std::size_t i = 0; i < rows * kHidden; ++i) all.push_back((first + i / kHidden) % 2 == 0 ? size : -size);
    return all;
  }
  /// The weight and `offset` with the sign of the row, in rows of `width` that end in zeros.
  static std::vector<float> normed(float offset, std::size_t rows = kRows, std::size_t first = 0, std::size_t width = kHidden) {
    std::vector<float> all(rows * width);
    for (std::size_t i = 0; i < rows * kHidden; ++i)
      all[i / kHidden * width + i % kHidden] =
          (first + i / kHidden) % 2 == 0 ? weights()[i % kHidden] + offset : -weights()[i % kHidden] - offset;
    return all;
  }
  static std::vector<float> weights() { return {0.5f, -2.0f, 0.25f, 3.0f}; }
};

/// Plain and symmetric memory, eager and in a graph, in place and not; scattered rows, gathered and not.
inline void norms() {
  ranks(3, [](symmetra::Bootstrap& bootstrap) {
    using namespace symmetra;
    using Rows = SignedRows;
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device);
    constexpr std::size_t kCount = Rows::kHidden * Rows::kRows;
    const std::size_t rank = communicator.rank();
    const SymmetricBuffer input = communicator.symmetric<float>(2 * kCount);
    const DeviceBuffer residual(device, kCount, Dtype::kF32), weight(device, Rows::kHidden, Dtype::kF32),
        output(device, kCount, Dtype::kF32);
    const DeviceBuffer kept(device, Rows::kHidden, Dtype::kF32), own_output(device, Rows::kHidden, Dtype::kF32);
    weight.write(Rows::weights(), stream);
    // The sum of the ranks is 2, and with the residual 4.
    const auto fill = [&] {
      std::vector<float> own = Rows::of(rank == 0 ? 1.0f : 0.5f);
      own.resize(2 * kCount);
      input.write(own, stream);
      residual.write(Rows::of(2), stream);
      kept.write(Rows::of(2, 1, rank), stream);
    };
    RmsNorm gemma;
    gemma.epsilon = 0;
    gemma.weight_offset = 1.0f;
    RowNorm rows(Operand(input, 0, kCount), weight, gemma);
    rows.residual = residual;
    rows.residual_out = residual;
    rows.output = output;
    const Graph graph = stream.capture([&](const Capture& capture) { communicator.all_reduce_norm(rows, capture); });
    graph.register_pointers();
    for (const bool captured : {false, true}) {
      fill();
      if (captured) graph.launch(stream);
      if (!captured) communicator.all_reduce_norm(rows, stream);
      communicator.synchronize(stream);
      CHECK(residual.read<float>(stream) == Rows::of(4));
      CHECK(output.read<float>(stream) == Rows::normed(1));
    }
    // Each rank norms a row, with a residual of its own.
    rows.residual = kept;
    rows.residual_out = kept;
    for (const bool gathers : {false, true}) {
      fill();
      rows.output = gathers ? output : own_output;
      gathers ? communicator.reduce_scatter_norm_all_gather(rows, stream) : communicator.reduce_scatter_norm(rows, stream);
      communicator.synchronize(stream);
      CHECK(kept.read<float>(stream) == Rows::of(4, 1, rank));
      if (gathers) CHECK(output.read<float>(stream) == Rows::normed(1));
      if (!gathers) CHECK(own_output.read<float>(stream) == Rows::normed(1, 1, rank));
    }
    RmsNorm norm;
    norm.epsilon = 0;
    RowNorm in_place(Operand(input, 0, kCount), weight, norm);
    in_place.output = Operand(input, 0, kCount);
    in_place.algorithm = Algorithm::kOneShotSentinel;
    RowNorm padded(Operand(input, 0, 8), weight, norm);
    padded.output = Operand(input, kCount, 12);
    padded.width = 6;
    for (const RowNorm& call : {in_place, padded}) {
      fill();
      communicator.all_reduce_norm(call, stream);
      communicator.synchronize(stream);
      const std::vector<float> found = input.read<float>(stream), right = call.width == 6 ? Rows::normed(0, 2, 0, 6) : Rows::normed(0);
      CHECK(std::equal(right.begin(), right.end(), found.begin() + (call.width == 6 ? kCount : 0)));
    }
    communicator.close();
  });
}

/// LayerNorm with a bias and without, scattered and quantised: the mean of a row is 5 or -5, the variance 4, and 4 + 5 has the
/// root 3.
inline void layer_norms() {
  ranks(2, [](symmetra::Bootstrap& bootstrap) {
    using namespace symmetra;
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device);
    const DeviceBuffer rows(device, 8, Dtype::kF32), weight(device, 4, Dtype::kF32), bias(device, 4, Dtype::kF32);
    const auto fill = [&] { rows.write(std::vector<float>{1.5f, 1.5f, 3.5f, 3.5f, -1.5f, -3.5f, -1.5f, -3.5f}, stream); };
    fill();
    weight.write(std::vector<float>{3.0f, 6.0f, 1.5f, -3.0f}, stream);
    bias.write(std::vector<float>{1.0f, 0.5f, -1.0f, 2.0f}, stream);
    RowNorm call(rows, weight, LayerNorm{5.0f});
    call.bias = bias;
    call.output = rows;
    communicator.all_reduce_norm(call, stream);
    communicator.synchronize(stream);
    CHECK(rows.read<float>(stream) == (std::vector<float>{-1.0f, -3.5f, 0.0f, 0.0f, 3.0f, -3.5f, 0.0f, 4.0f}));

    // The rank's row of the sum, without a bias, with 3 added to the weights.
    fill();
    const DeviceBuffer own(device, 4, Dtype::kF32);
    RowNorm offset(rows, weight, LayerNorm{5.0f, 3.0f});
    offset.output = own;
    communicator.reduce_scatter_norm(offset, stream);
    communicator.synchronize(stream);
    const float first = communicator.rank() == 0 ? -4.0f : 4.0f;
    CHECK(own.read<float>(stream) == (std::vector<float>{first, -6.0f, 3.0f, 0.0f}));

    // Quantised rows alone, whose largest values are 3.5 and 4.
    fill();
    const DeviceBuffer codes(device, 8, Dtype::kI8), scales(device, 2, Dtype::kF32);
    call.output.reset();
    call.quantised = QuantisedRows(Scaling::kPerToken, Narrow::kI8, codes);
    call.quantised->scales = scales;
    communicator.all_reduce_norm(call, stream);
    communicator.synchronize(stream);
    CHECK(codes.read<std::int8_t>(stream) == (std::vector<std::int8_t>{-36, -127, 0, 0, 95, -111, 0, 127}));
    CHECK(scales.read<float>(stream) == (std::vector<float>{3.5f / 127.0f, 4.0f / 127.0f}));
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
    const auto refused = [&](const RowNorm& call, const char* words) {
      says(CHECK_THROWS(kInvalidArgument, communicator.all_reduce_norm(call, stream)), words);
    };
    RowNorm call(rows, weight);
    refused(call, "the number of outputs is 0");
    call.output = doubles;
    refused(call, "the output's type is f64, but the input's is f32");
    call.output = rows;
    call.width = 3;
    refused(call, "the width of an output row is 3");
    call.width = 0;
    call.norm = RmsNorm{-1.0f};
    refused(call, "epsilon is");
    call.norm = LayerNorm{-1.0f};
    refused(call, "epsilon is");
    call.norm = LayerNorm();
    call.bias = rows;
    refused(call, "the bias's length is 8");
    RowNorm uneven(Operand(rows.data(), 4, Dtype::kF32), weight);
    uneven.output = Operand(rows.data(), 4, Dtype::kF32);
    says(CHECK_THROWS(kInvalidArgument, communicator.reduce_scatter_norm_all_gather(uneven, stream)),
         "the number of rows is 1, but it must be a multiple of the world size, 2");
    RowNorm heavy(rows, doubles);
    heavy.output = rows;
    says(CHECK_THROWS(kUnsupported, communicator.all_reduce_norm(heavy, stream)), "a weight of f64");
    call.norm = RmsNorm();
    says(CHECK_THROWS(kUnsupported, communicator.all_reduce_norm(call, stream)), "RMSNorm with a bias");
    call.bias.reset();
    communicator.all_reduce_norm(call, stream);
    communicator.synchronize(stream);
    communicator.close();
  });
}

}  // namespace test
