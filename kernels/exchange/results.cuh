// The results of a reduction whose packets have arrived: one of all ranks, or one of each few consecutive ranks.
#pragma once
#include "kernels/exchange/strip.cuh"
#include "kernels/reduce.cuh"

namespace symmetra::kernels {

/// kWorld: of a reduction over all ranks, or 0. Only kernels for any world size make several results.
template <class Data, uint32_t kWorld, class Message>
class Results {
 public:
  SYMMETRA_DEVICE explicit Results(const ExchangeArgs& args) : args_(args), into_(args.into[args.rank]), in_(strip(into_)) {}

  SYMMETRA_DEVICE bool has(auto packet) const { return in_.has(packet); }

  /// Reduces, in rank order, what is in a lane of a block's tile, and stores the packet of each result.
  template <class Element>
  SYMMETRA_DEVICE void store(auto packet, const Data* lane) const {
    if (!in_.has(packet)) return;
    const uint32_t lanes_log2 = args_.lanes_log2;
    if constexpr (kWorld == 0) {
      const uint32_t sources = args_.sources;
      for (uint32_t first = 0; sources != 0 && first < args_.world; first += sources) {
        uint8_t* into = args_.into[first];
        const Reduction reduction{args_.reduction, sources};
        strip(into).store(into, packet, reduce_ranks<Element, 0>(lane + (first << lanes_log2), lanes_log2, reduction));
      }
      if (sources != 0) return;
    }
    in_.store(into_, packet, reduce_ranks<Element, kWorld>(lane, lanes_log2, Reduction{args_.reduction, world_of<kWorld>(args_.world)}));
  }

 private:
  SYMMETRA_DEVICE Message strip(const uint8_t* into) const {
    return Message(args_.receive_bytes[args_.rank], args_.row_bytes, args_.into_pitch_bytes, address_bits(into));
  }

  const ExchangeArgs& args_;
  uint8_t* into_;
  Message in_;
};

}  // namespace symmetra::kernels
