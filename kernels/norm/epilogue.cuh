// The epilogue of a row's sum over the ranks: the residual is added, and the row is normed and optionally quantised.
#pragma once
#include <type_traits>

#include "kernels/norm/groups.cuh"
#include "kernels/norm/quantise.cuh"

namespace symmetra::kernels {

/// The scale of a row, which the norm of each packet needs.
struct RowScale {
  float factor;   ///< 1 / sqrt(squares / hidden + epsilon)
  float largest;  ///< the largest absolute value in y, if the row's scale depends on it
  float mean;     ///< of x in LayerNorm; else 0

  SYMMETRA_DEVICE RowScale with_largest(float other) const { return {factor, other, mean}; }
  /// The scale in a packet of the owner of the row.
  SYMMETRA_DEVICE static RowScale of(const Words<4>& packet) {
    return {platform::f32_of(packet.word[0]), platform::f32_of(packet.word[1]), platform::f32_of(packet.word[2])};
  }
};

/// The rows of a launch.
SYMMETRA_DEVICE const NormArgs& rows_of(const FusedNormArgs& args) { return args.norm; }
SYMMETRA_DEVICE LayerNormArgs rows_of(const FusedLayerNormArgs& args) { return {args.norm, args.bias}; }
/// The argument block of the rows in a fused argument block.
template <class Args>
using RowsOf = std::conditional_t<std::is_base_of_v<FusedLayerNormArgs, Args>, LayerNormArgs, NormArgs>;

/// The operands of one row. Args: the argument block of the rows.
template <class Element, bool kQuantised, class Args = NormArgs, bool kWhole = false, class Format = AnyFormat>
class Epilogue {
 public:
  using Data = Words<4>;
  static constexpr bool kLayer = std::is_same_v<Args, LayerNormArgs>;
  static constexpr uint32_t kCount = kValues<Element, 4>;
  using Values = float[kCount];
  /// The weights of a packet, in the rows' type or in single precision.
  struct Weights {
    Data part[kCount / 4];
  };

  SYMMETRA_DEVICE Epilogue(const Args& args, uint64_t row)
      : args_(args),
        residual_(args.residual, row * args.hidden, args.hidden),
        residual_out_(args.residual_out, row * args.hidden, args.hidden),
        output_(args.output, row * args.width, args.width),
        weight_(args.weight, 0, args.hidden),
        wide_weight_(args.weight, 0, args.hidden),
        quantiser_(args, row) {}

  /// Whether the scale of a row depends on the largest absolute value in the row.
  SYMMETRA_DEVICE static bool wants_largest(const Args& args) { return kQuantised && Format::scaling(args.quantised) == kScalingPerToken; }

  /// The groups of an output row, which may have more packets than an input row. Threads handle `places` packets at once.
  SYMMETRA_DEVICE static Groups groups(const Args& args, uint32_t places) {
    return {kQuantised ? args.quantised.elems / kCount : 0, places, packets_of<Element>(args.width)};
  }

  /// A packet of the residual, if there is one.
  SYMMETRA_DEVICE Data residual(uint32_t packet) const { return args_.residual == nullptr ? Data{} : residual_.load(packet); }

  /// A packet of x: the sum of the packet and of the residual's packet.
  SYMMETRA_DEVICE Data with_residual(const Data& sum, const Data& residual) const {
    if (args_.residual == nullptr) return sum;
    Values x, added;
    Element::unpack(sum, x);
    Element::unpack(residual, added);
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) x[i] = platform::add(x[i], added[i]);
    return Element::template pack<4>(x);
  }

  /// The weights of a packet, as stored in memory. Load the weights before waiting for peers, so that the load latency
  /// overlaps the wait.
  SYMMETRA_DEVICE Weights weights(uint32_t packet) const { return load(weight_, wide_weight_, packet); }

  /// Writes a packet of x, if requested.
  SYMMETRA_DEVICE void keep(uint32_t packet, const Data& x) const {
    if (args_.residual_out != nullptr) residual_out_.store(packet, x);
  }
  /// A packet of x that `keep` has written. Requires `args.residual_out`.
  SYMMETRA_DEVICE Data kept(uint32_t packet) const { return residual_out_.load(packet); }

  /// Adds a packet of x to the columns of its row. `weights(packet)`: the packet's weights.
  template <class W>
  SYMMETRA_DEVICE void add(const Columns& columns, uint32_t packet, const Data& x, W weights) const {
    if constexpr (kLayer) return columns.add(packet, {sum_of(x), 0.0f});
    Values values{};
    if (kQuantised && columns.wants_largest()) weighed(packet, x, weights(packet), values);
    columns.add(packet, totals(x, values));
  }

  /// The totals of a packet of x. `weighed`: the packet of x (weight + offset), if the scale of a row depends on it.
  SYMMETRA_DEVICE RowTotals totals(const Data& x, const Values& weighed) const {
    Values values;
    Element::unpack(x, values);
    return {sum_of_squares(values), wants_largest(args_) ? largest_of(weighed) : 0.0f};
  }

  /// The scale of the row whose packets have been added to `columns`. `x(packet)` and `weights(packet)`: packets of x and
  /// of the weights. All threads of the block call it.
  template <class X, class W>
  SYMMETRA_DEVICE RowScale scale(const Columns& columns, [[maybe_unused]] X x, [[maybe_unused]] W weights) const {
    if constexpr (kLayer) {
      return layer_scale(columns, x, weights);
    } else {
      return scale(columns.total());
    }
  }

  /// The largest absolute value in y is computed from the largest of x (weight + offset), because rounding preserves
  /// the order. It is NaN for a row with an infinite factor.
  SYMMETRA_DEVICE RowScale scale(const RowTotals& totals) const {
    const float factor = factor_of(totals.sum);
    if (!wants_largest(args_)) return {factor, 0.0f, 0.0f};
    return {factor, is_endless(factor) ? platform::f32_of(F32::kQuietNan) : of_y(totals.largest, factor), 0.0f};
  }

  /// The largest absolute value in a packet of y.
  SYMMETRA_DEVICE float largest(uint32_t packet, const Data& x, const Weights& weights, const RowScale& scale) const {
    return largest(y(packet, x, weights, scale));
  }

  /// The factors of a packet of x: weight + offset.
  SYMMETRA_DEVICE void factors(const Weights& held, Values& factors) const {
    unpack(held, factors);
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) factors[i] = platform::add(factors[i], args_.weight_offset);
  }
  /// A packet of x (weight + offset). Values after the row's end are zero.
  SYMMETRA_DEVICE void weighed(uint32_t packet, const Data& x, const Values& factors, Values& values) const {
    Element::unpack(x, values);
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const float product = platform::multiply(values[i], factors[i]);
      values[i] = kWhole || packet * kCount + i < args_.hidden ? product : 0.0f;
    }
  }
  SYMMETRA_DEVICE void weighed(uint32_t packet, const Data& x, const Weights& weights, Values& values) const {
    Values by;
    factors(weights, by);
    weighed(packet, x, by, values);
  }
  /// A packet of y, from the packet of x (weight + offset).
  SYMMETRA_DEVICE Data y(uint32_t packet, const Values& weighed, float factor) const {
    Values values;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const float normed = platform::multiply(weighed[i], factor);
      values[i] = kWhole || packet * kCount + i < args_.hidden ? normed : 0.0f;
    }
    return Element::template pack<4>(values);
  }
  /// A packet of y, from the packet of x.
  SYMMETRA_DEVICE Data y(uint32_t packet, const Data& x, const Weights& weights, const RowScale& scale) const {
    if constexpr (kLayer) return layer_y(packet, x, weights, scale);
    Values values;
    weighed(packet, x, weights, values);
    return y(packet, values, scale.factor);
  }
  /// The largest absolute value in a packet of y.
  SYMMETRA_DEVICE float largest(const Data& y) const {
    Values values;
    Element::unpack(y, values);
    return largest_of(values);
  }
  /// Whether a packet of y shares its scale with a few neighbouring packets only.
  SYMMETRA_DEVICE bool grouped() const {
    const uint32_t scaling = Format::scaling(args_.quantised);
    return kQuantised && scaling != kScalingStatic && scaling != kScalingPerToken;
  }
  /// The largest absolute value in the group of a packet of x (weight + offset), if packets share a scale with
  /// neighbours only. The threads of a team have consecutive packets, and a group never spans teams. `has`: whether
  /// this thread has a packet. All threads of the team call it while the teams exchange the sums of the row, so that a
  /// group needs no exchange of its own afterwards.
  SYMMETRA_DEVICE float largest_of_group(bool has, const Values& weighed) const {
    return grouped() ? in_group(has ? largest_of(weighed) : 0.0f) : 0.0f;
  }
  /// Writes a packet of y and its quantised values, as requested. `largest`: the largest absolute value in y among the
  /// packets that share the packet's scale.
  SYMMETRA_DEVICE void store(uint32_t packet, const Data& y, float largest) const {
    if (args_.output != nullptr) output_.store(packet, y);
    if constexpr (kQuantised) {
      Values values;
      Element::unpack(y, values);
      quantiser_.store(packet, values, largest);
    }
  }

  /// Norms and writes the packet of each thread of a team, as requested, from x (weight + offset). `has`: whether this
  /// thread has a packet; `of_group`: the result of largest_of_group. All threads of the team call it.
  SYMMETRA_DEVICE void norm_in_team(uint32_t packet, bool has, const Values& weighed, float of_group, const RowScale& scale) const {
    const Data normed = y(packet, weighed, scale.factor);
    float most = scale.largest;
    if (grouped()) {
      most = of_y(of_group, scale.factor);
      // A thread without a packet has no y: zero times an infinite scale is NaN, which would count as the largest.
      if (platform::sync_team_or(is_endless(scale.factor))) most = in_group(has ? largest(normed) : 0.0f);
    }
    if (has) store(packet, normed, most);
  }

  /// The biases of a packet in LayerNorm; zeros without a bias.
  SYMMETRA_DEVICE void biases(uint32_t packet, Values& biases) const {
    if constexpr (kLayer) {
      if (args_.bias != nullptr) return unpack(load({args_.bias, 0, args_.hidden}, {args_.bias, 0, args_.hidden}, packet), biases);
    }
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) biases[i] = 0.0f;
  }

  /// Norms and writes the packet of x of each thread of a cluster in LayerNorm, as requested. `totals`: of the cluster. `has`:
  /// whether this thread has a packet. All threads of the cluster call it.
  template <class Totals>
  SYMMETRA_DEVICE void layer_norm_in_cluster(Totals& totals, uint32_t packet, bool has, const Data& x, const Values& factors,
                                             const Values& biases) const {
    const auto total = [&](const RowTotals& mine) {
      totals.tell(mine);
      return totals.hear();
    };
    RowScale scale{0.0f, 0.0f, mean(platform::add(total({sum_of(x), 0.0f}).sum, 0.0f))};
    Values values{};
    if (has) centred(packet, x, scale.mean, values);
    scale.factor = factor_of(total({sum_of_squares(values), 0.0f}).sum);
    if (has) keep(packet, x);  // after the exchanges, which then wait for no store
    const Data normed = has ? layer_y(packet, x, factors, biases, scale) : Data{};
    if (wants_largest(args_)) {
      const RowTotals all = total({0.0f, largest(normed)});
      scale.largest = is_endless(scale.factor) ? platform::f32_of(F32::kQuietNan) : all.largest;
    }
    const float most = grouped() ? in_group(largest(normed)) : scale.largest;
    if (has) store(packet, normed, most);
  }

  /// Writes a packet of the output and its quantised values, as requested. Elements after the row's end are zero.
  /// `scale.largest`: the largest absolute value in y among the packets that share the packet's scale.
  SYMMETRA_DEVICE void norm(uint32_t packet, const Data& x, const Weights& weights, const RowScale& scale) const {
    if (!kQuantised && args_.output == nullptr) return;
    store(packet, y(packet, x, weights, scale), scale.largest);
  }

  /// Writes the output row and its quantised values, by all threads of the block. `x(packet)` and `weights(packet)`:
  /// packets of x and of the weights; `noted`: kNormColumns words of shared memory, if the row has groups. All threads
  /// sync before these words are reused.
  template <class X, class W>
  SYMMETRA_DEVICE void norm_row(X x, W weights, const RowScale& scale, float* noted) const {
    if (!kQuantised && args_.output == nullptr) return;
    const auto padded = [&](uint32_t packet) { return packet < residual_.packets() ? x(packet) : Data{}; };
    const Groups groups = Epilogue::groups(args_, kNormColumns);
    for (uint32_t start = 0; start < groups.packets(); start += groups.span()) {
      const uint32_t count = groups.count(start);
      if (groups.any()) {
        if (start != 0) platform::sync_block();  // all threads have read the values of the previous span
        for (uint32_t place = platform::thread(); place < kNormColumns; place += platform::threads()) {
          for (uint32_t offset = place; offset < count; offset += kNormColumns) {
            groups.note(noted, offset, largest(start + offset, padded(start + offset), weights(start + offset), scale));
          }
        }
        platform::sync_block();
      }
      for (uint32_t offset = platform::thread(); offset < count; offset += platform::threads()) {
        const float most = groups.any() ? groups.largest(noted, offset, count) : scale.largest;
        norm(start + offset, padded(start + offset), weights(start + offset), scale.with_largest(most));
      }
    }
  }

 private:
  /// The scale of a row of LayerNorm. `columns` has the sum of x. The mean is subtracted before values are squared, so a
  /// mean that is much larger than the deviations costs few bits. A sum of -0 becomes +0, because missing columns decide
  /// the sign of a zero.
  template <class X, class W>
  SYMMETRA_DEVICE RowScale layer_scale(const Columns& columns, X x, W weights) const {
    RowScale scale{0.0f, 0.0f, mean(platform::add(columns.total().sum, 0.0f))};
    const auto totals = [&](auto of_packet) {
      platform::sync_block();  // all threads have read the previous total
      for (uint32_t column = platform::thread(); column < columns.count(); column += platform::threads()) {
        for (uint32_t packet = column; packet < residual_.packets(); packet += kNormColumns) columns.add(packet, of_packet(packet));
      }
      return columns.total();
    };
    const RowTotals spread = totals([&](uint32_t packet) {
      Values values;
      centred(packet, x(packet), scale.mean, values);
      return RowTotals{sum_of_squares(values), 0.0f};
    });
    scale.factor = factor_of(spread.sum);
    if (wants_largest(args_)) {
      const RowTotals all = totals([&](uint32_t packet) { return RowTotals{0.0f, largest(packet, x(packet), weights(packet), scale)}; });
      scale.largest = is_endless(scale.factor) ? platform::f32_of(F32::kQuietNan) : all.largest;
    }
    return scale;
  }
  /// A packet of y in LayerNorm.
  SYMMETRA_DEVICE Data layer_y(uint32_t packet, const Data& x, const Weights& weights, const RowScale& scale) const {
    Values by, bias;
    factors(weights, by);
    biases(packet, bias);
    return layer_y(packet, x, by, bias, scale);
  }
  SYMMETRA_DEVICE Data layer_y(uint32_t packet, const Data& x, const Values& factors, const Values& biases, const RowScale& scale) const {
    Values values;
    centred(packet, x, scale.mean, values);
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const float scaled = platform::multiply(platform::multiply(values[i], factors[i]), scale.factor);
      // The sum of -0 and 0 would be 0.
      const float normed = args_.bias != nullptr ? platform::add(scaled, biases[i]) : scaled;
      values[i] = kWhole || packet * kCount + i < args_.hidden ? normed : 0.0f;
    }
    return Element::template pack<4>(values);
  }
  /// A packet of x - mean. Values after the row's end are zero.
  SYMMETRA_DEVICE void centred(uint32_t packet, const Data& x, float mean, Values& values) const {
    Element::unpack(x, values);
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) values[i] = kWhole || packet * kCount + i < args_.hidden ? platform::add(values[i], -mean) : 0.0f;
  }
  SYMMETRA_DEVICE static float sum_of(const Data& x) {
    Values values;
    Element::unpack(x, values);
    return tree_sum(values);
  }
  /// 1 / sqrt(squares / hidden + epsilon)
  SYMMETRA_DEVICE float factor_of(float squares) const {
    return platform::reciprocal(platform::square_root(platform::add(mean(squares), args_.epsilon)));
  }
  /// A packet of weights or biases, whose rows are in the type of the rows or in single precision.
  SYMMETRA_DEVICE Weights load(const Row<Element, kWhole>& narrow, const Row<F32, kWhole>& wide, uint32_t packet) const {
    Weights weights{};
    if (args_.weight_dtype != kF32) {
      weights.part[0] = narrow.load(packet);
      return weights;
    }
    SYMMETRA_UNROLL
    for (uint32_t part = 0; part < kCount / 4; ++part) weights.part[part] = wide.load(packet * (kCount / 4) + part);
    return weights;
  }

  SYMMETRA_DEVICE static bool is_endless(float factor) { return platform::bits_of(factor) == 0x7F800000; }
  /// The largest absolute value in some values of y, from the largest of x (weight + offset), because rounding
  /// preserves the order. With an infinite factor, zeros have no order.
  SYMMETRA_DEVICE static float of_y(float largest, float factor) {
    Values values = {platform::multiply(largest, factor)};
    Element::unpack(Element::template pack<4>(values), values);
    return values[0];
  }
  /// The largest absolute value among the threads of a group.
  SYMMETRA_DEVICE float in_group(float largest) const {
    return platform::f32_of(platform::team_max(args_.quantised.elems / kCount, platform::bits_of(largest)));
  }

  /// The mean of `sum`, a sum over a row. The reciprocal of a power of two is exact, so multiplying with the reciprocal
  /// gives the same bits as the division, and is faster.
  SYMMETRA_DEVICE float mean(float sum) const {
    const float hidden = static_cast<float>(args_.hidden);
    if ((args_.hidden & (args_.hidden - 1)) != 0) return platform::divide(sum, hidden);
    return platform::multiply(sum, platform::f32_of(0x7F000000 - platform::bits_of(hidden)));
  }

  /// The largest absolute value of some values.
  SYMMETRA_DEVICE static float largest_of(const Values& values) {
    float most = 0.0f;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) most = larger(most, platform::f32_of(platform::bits_of(values[i]) & 0x7FFFFFFF));
    return most;
  }

  SYMMETRA_DEVICE void unpack(const Weights& held, Values& weights) const {
    if (args_.weight_dtype != kF32) return Element::unpack(held.part[0], weights);
    SYMMETRA_UNROLL
    for (uint32_t part = 0; part < kCount / 4; ++part) {
      float four[4];
      F32::unpack(held.part[part], four);
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < 4; ++i) weights[part * 4 + i] = four[i];
    }
  }

  const Args& args_;
  Row<Element, kWhole> residual_, residual_out_, output_, weight_;
  Row<F32, kWhole> wide_weight_;
  Quantiser<Element, kWhole, Format> quantiser_;
};

}  // namespace symmetra::kernels
