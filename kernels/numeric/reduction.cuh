// Reductions of element types. A kernel's Element is one of these: an element type with an Accumulator. The Accumulator
// takes the packets of the ranks in rank order, start() for the first and add() for the rest, and rounds once, so that
// every algorithm gives equal bits on every platform.
#pragma once
#include "kernels/words.cuh"

namespace symmetra::kernels {

/// A reduction and its number of ranks.
struct Reduction {
  uint32_t kind;  ///< kSum...
  uint32_t world;
};

/// Values in a packet of kWords words.
template <class ElementType, uint32_t kWords>
constexpr uint32_t kValues = 4 * kWords / ElementType::kBytes;

/// The sum, fixed at compile time, for the types of language models.
template <class ElementType>
struct Sum : ElementType {
  template <uint32_t kWords>
  class Accumulator {
   public:
    SYMMETRA_DEVICE explicit Accumulator(const Reduction&) {}
    SYMMETRA_DEVICE void start(const Words<kWords>& data) { ElementType::unpack(data, total_); }
    SYMMETRA_DEVICE void add(const Words<kWords>& data) {
      Values next;
      ElementType::unpack(data, next);
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kValues<ElementType, kWords>; ++i) total_[i] = ElementType::plus(total_[i], next[i]);
    }
    SYMMETRA_DEVICE Words<kWords> round() const { return ElementType::template pack<kWords>(total_); }

   private:
    using Values = typename ElementType::Value[kValues<ElementType, kWords>];
    Values total_ SYMMETRA_ZERO_ON_HOST;
  };
};

/// Any reduction, chosen at run time; all threads branch alike. One kernel serves all five reductions, to keep the
/// number of kernels small.
template <class ElementType>
struct Reduced : ElementType {
  template <uint32_t kWords>
  class Accumulator {
   public:
    SYMMETRA_DEVICE explicit Accumulator(const Reduction& reduction) : reduction_(reduction) {}
    SYMMETRA_DEVICE void start(const Words<kWords>& data) { ElementType::unpack(data, total_); }
    SYMMETRA_DEVICE void add(const Words<kWords>& data) {
      Values next;
      ElementType::unpack(data, next);
      switch (reduction_.kind) {
        case kProduct:
          return combine(next, [](Value a, Value b) { return ElementType::times(a, b); });
        case kMin:
          return combine(next, [](Value a, Value b) { return ElementType::least(a, b); });
        case kMax:
          return combine(next, [](Value a, Value b) { return ElementType::greatest(a, b); });
        default:  // kSum, kAverage
          return combine(next, [](Value a, Value b) { return ElementType::plus(a, b); });
      }
    }
    SYMMETRA_DEVICE Words<kWords> round() const {
      if (reduction_.kind != kAverage) return ElementType::template pack<kWords>(total_);
      Values average;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) average[i] = ElementType::over(total_[i], reduction_.world);
      return ElementType::template pack<kWords>(average);
    }

   private:
    static constexpr uint32_t kCount = kValues<ElementType, kWords>;
    using Value = typename ElementType::Value;
    using Values = Value[kCount];

    template <class Combine>
    SYMMETRA_DEVICE void combine(const Values& next, Combine combine) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) total_[i] = combine(total_[i], next[i]);
    }

    Reduction reduction_;
    Values total_ SYMMETRA_ZERO_ON_HOST;
  };
};

}  // namespace symmetra::kernels
