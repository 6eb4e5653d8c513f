// What becomes of a row's sum over the ranks: the residual is added, and the row is normed.
#pragma once
#include "kernels/norm/rows.cuh"

namespace symmetra::kernels {

/// The operands of one row.
template <class Element>
class Epilogue {
 public:
  using Data = Words<4>;
  static constexpr uint32_t kCount = kValues<Element, 4>;
  using Values = float[kCount];

  SYMMETRA_DEVICE Epilogue(const NormArgs& args, uint64_t row)
      : args_(args),
        residual_(args.residual, row * args.hidden, args.hidden),
        residual_out_(args.residual_out, row * args.hidden, args.hidden),
        output_(args.output, row * args.width, args.width),
        weight_(args.weight, 0, args.hidden),
        wide_weight_(args.weight, 0, args.hidden) {}

  /// The packets of an output row, which may be more than those of an input row.
  SYMMETRA_DEVICE uint32_t packets() const { return output_.packets(); }

  /// A packet of x, by that of the sum.
  SYMMETRA_DEVICE Data with_residual(uint32_t packet, const Data& sum) const {
    if (args_.residual == nullptr) return sum;
    Values x, residual;
    Element::unpack(sum, x);
    Element::unpack(residual_.load(packet), residual);
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) x[i] = platform::add(x[i], residual[i]);
    return Element::template pack<4>(x);
  }

  /// Writes a packet of x, if asked for.
  SYMMETRA_DEVICE void keep(uint32_t packet, const Data& x) const {
    if (args_.residual_out != nullptr) residual_out_.store(packet, x);
  }
  /// A packet of x that keep has written; `args.residual_out` is given.
  SYMMETRA_DEVICE Data kept(uint32_t packet) const { return residual_out_.load(packet); }

  SYMMETRA_DEVICE float squares(const Data& x) const {
    Values values;
    Element::unpack(x, values);
    return sum_of_squares(values);
  }

  /// 1 / sqrt(squares / hidden + epsilon).
  SYMMETRA_DEVICE float scale(float squares) const {
    const float mean = platform::divide(squares, static_cast<float>(args_.hidden));
    return platform::divide(1.0f, platform::square_root(platform::add(mean, args_.epsilon)));
  }

  /// Writes a packet of the output, if asked for. Elements behind the row's end are zero.
  SYMMETRA_DEVICE void norm(uint32_t packet, const Data& x, float scale) const {
    if (args_.output == nullptr) return;
    Values values, weights;
    Element::unpack(x, values);
    load_weights(packet, weights);
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const float weighted = platform::multiply(values[i], platform::add(weights[i], args_.weight_offset));
      values[i] = packet * kCount + i < args_.hidden ? platform::multiply(weighted, scale) : 0.0f;
    }
    output_.store(packet, Element::template pack<4>(values));
  }

  /// Writes the output row by all threads of the block. `x(packet)` is a packet of x.
  template <class X>
  SYMMETRA_DEVICE void norm_row(X x, float scale) const {
    if (args_.output == nullptr) return;
    for (uint32_t packet = platform::thread(); packet < packets(); packet += platform::threads()) {
      norm(packet, packet < residual_.packets() ? x(packet) : Data{}, scale);
    }
  }

 private:
  SYMMETRA_DEVICE void load_weights(uint32_t packet, Values& weights) const {
    if (args_.weight_dtype != kF32) return Element::unpack(weight_.load(packet), weights);
    SYMMETRA_UNROLL
    for (uint32_t part = 0; part < kCount / 4; ++part) {
      float four[4];
      F32::unpack(wide_weight_.load(packet * (kCount / 4) + part), four);
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < 4; ++i) weights[part * 4 + i] = four[i];
    }
  }

  const NormArgs& args_;
  Row<Element> residual_, residual_out_, output_, weight_;
  Row<F32> wide_weight_;
};

}  // namespace symmetra::kernels
