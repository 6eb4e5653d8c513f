// The buffers of a bench on one rank, and rows on them: bench.rs and norm.rs in C++.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "symmetra/symmetra.hpp"
#include "words.hpp"

namespace fuzz {

/// Elements of a buffer, the last of which no call uses.
constexpr std::size_t kLength = 4096 + 256;
/// Buffers of the type of a bench; they are followed by one of f32, with weights and biases.
constexpr std::size_t kBuffers = 9, kWeights = 8, kWide = 9;

/// Memory with the quantised rows of one call.
class Codes {
 public:
  /// Collective where the memory is symmetric.
  Codes(const symmetra::Communicator& group, const symmetra::Device& device, const Narrow& narrow, const symmetra::Stream& stream)
      : narrow_(narrow), known_(device, 1, symmetra::Dtype::kF32) {
    for (const auto& [extent, at] : {std::pair(narrow.values, narrow.at), std::pair(narrow.scales, std::size_t{0})}) {
      const auto dtype = static_cast<symmetra::Dtype>(extent.dtype);
      if (narrow.symmetric) {
        symmetric_.push_back(group.symmetric(extent.elems + at, dtype));
      } else {
        plain_.emplace_back(device, extent.elems + at, dtype);
      }
      const std::vector<char> before((extent.elems + at) * extent.elem_bytes, '\xa5');
      const void* const from = before.data();
      narrow.symmetric ? symmetric_.back().write(from, stream) : plain_.back().write(from, stream);
    }
    float known;
    std::memcpy(&known, &narrow.known, sizeof known);
    known_.write(std::vector<float>{known}, stream);
  }

  symmetra::QuantisedRows asked() const {
    const auto scaling = static_cast<symmetra::Scaling>(narrow_.scaling);
    symmetra::QuantisedRows rows(scaling, static_cast<symmetra::Narrow>(narrow_.to), operand(0, narrow_.at, narrow_.values));
    if (scaling != symmetra::Scaling::kStatic) rows.scales = operand(1, 0, narrow_.scales);
    if (scaling == symmetra::Scaling::kStatic || scaling == symmetra::Scaling::kNvfp4) rows.known_scale = known_;
    rows.elems = narrow_.elems;
    rows.layout = static_cast<symmetra::ScaleLayout>(narrow_.layout);
    return rows;
  }

  /// Appends all bytes.
  void read(std::vector<char>& all, const symmetra::Stream& stream) const {
    for (std::size_t which = 0; which < 2; ++which) {
      const Extent& extent = which == 0 ? narrow_.values : narrow_.scales;
      std::vector<char> bytes((extent.elems + (which == 0 ? narrow_.at : 0)) * extent.elem_bytes);
      void* const into = bytes.data();
      narrow_.symmetric ? symmetric_[which].read(into, stream) : plain_[which].read(into, stream);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  }

 private:
  symmetra::Operand operand(std::size_t which, std::size_t start, const Extent& extent) const {
    if (narrow_.symmetric) return {symmetric_[which], start, extent.elems};
    return {static_cast<char*>(plain_[which].data()) + start * extent.elem_bytes, extent.elems, static_cast<symmetra::Dtype>(extent.dtype)};
  }

  Narrow narrow_;
  std::vector<symmetra::SymmetricBuffer> symmetric_;
  std::vector<symmetra::DeviceBuffer> plain_;
  symmetra::DeviceBuffer known_;
};

struct Bench {
  std::size_t group, elem_bytes;
  symmetra::Dtype dtype;
  std::vector<symmetra::SymmetricBuffer> symmetric;
  std::vector<symmetra::DeviceBuffer> plain;
  /// By the seed of the call.
  std::map<std::uint64_t, Codes> codes;

  char* data(std::size_t buffer) const { return static_cast<char*>(buffer < 2 ? symmetric[buffer].data() : plain[buffer - 2].data()); }
  /// Bytes of an element of a buffer.
  std::size_t bytes(std::size_t buffer) const { return buffer == kWide ? sizeof(float) : elem_bytes; }
  /// Elements of a buffer as plain memory.
  symmetra::Operand part(std::size_t buffer, std::size_t start, std::size_t count) const {
    return {data(buffer) + start * bytes(buffer), count, buffer == kWide ? symmetra::Dtype::kF32 : dtype};
  }
  std::vector<char> read(std::size_t buffer, const symmetra::Stream& stream) const {
    std::vector<char> values(kLength * bytes(buffer));
    void* const into = values.data();
    buffer < 2 ? symmetric[buffer].read(into, stream) : plain[buffer - 2].read(into, stream);
    return values;
  }
  void write(std::size_t buffer, const std::vector<char>& values, const symmetra::Stream& stream) const {
    const void* const from = values.data();
    buffer < 2 ? symmetric[buffer].write(from, stream) : plain[buffer - 2].write(from, stream);
  }

  /// The rows of a call on rank `rank`.
  symmetra::RowNorm rows(const Call& call, std::size_t rank, const symmetra::Operand& input, const symmetra::Operand& output) const {
    const Norm& norm = *call.norm;
    const float epsilon = 1e-6f, weight_offset = norm.gemma ? 1.0f : 0.0f;
    const symmetra::Norm how = norm.layer ? symmetra::Norm(symmetra::LayerNorm{epsilon, weight_offset})
                                          : symmetra::Norm(symmetra::RmsNorm{epsilon, weight_offset});
    const std::size_t weights = norm.wide ? kWide : kWeights;
    symmetra::RowNorm rows(input, part(weights, norm.weight, norm.hidden), how);
    if (!norm.bias.empty()) rows.bias = part(weights, norm.bias[0], norm.hidden);
    rows.algorithm = symmetra::algorithm(call.algorithm);
    rows.width = norm.width;
    if (!norm.residual.empty()) rows.residual = part(norm.kept, norm.residual[0], norm.share);
    if (norm.x_is_input) rows.residual_out = input;
    if (!norm.x.empty()) rows.residual_out = part(norm.x[0], norm.x[1] + rank * norm.x[2], norm.share);
    if (norm.has_output) rows.output = output;
    if (norm.narrow) rows.quantised = codes.at(norm.narrow->seed).asked();
    return rows;
  }
};

}  // namespace fuzz
