// The results of a reduction whose packets have arrived: one result of all ranks, or one of each group of a few
// consecutive ranks.
#pragma once
#include "kernels/exchange/strip.cuh"
#include "kernels/reduce.cuh"

namespace symmetra::kernels {

/// kWorld: the world size of a reduction over all ranks, or 0. Only kernels for any world size make several results.
template <class Data, uint32_t kWorld, class Message>
class Results {
 public:
  SYMMETRA_DEVICE explicit Results(const ExchangeArgs& args)
      : args_(args),
        sources_(several(args) ? args.sources : world_of<kWorld>(args.world)),
        items_((several(args) ? args.world / args.sources : 1) << args.lanes_log2),
        in_(args.receive_bytes[args.rank], args.row_bytes, args.into_pitch_bytes, addresses(args)) {}

  SYMMETRA_DEVICE bool has(auto packet) const { return in_.has(packet); }

  /// Reduces, in rank order, the arrived packets of a tile, up to packet `end`. A thread makes a packet of one result.
  template <class Element>
  SYMMETRA_DEVICE void store(auto tile, auto end, const Data* arrived) const {
    const uint32_t lanes_log2 = args_.lanes_log2;
    platform::each(items_, [&](uint32_t item) {
      const uint32_t lane = item & ((1u << lanes_log2) - 1), first = (item >> lanes_log2) * sources_;
      if (tile + lane >= end || !in_.has(tile + lane)) return;
      const Data* const lanes = arrived + (first << lanes_log2) + lane;
      const Reduction reduction{args_.reduction, sources_};
      in_.store(into(args_, first), tile + lane, reduce_ranks<Element, kWorld>(lanes, lanes_log2, reduction));
    });
  }

 private:
  SYMMETRA_DEVICE static bool several(const ExchangeArgs& args) { return kWorld == 0 && args.sources != 0; }
  /// The address of the result whose first source is `first`.
  SYMMETRA_DEVICE static uint8_t* into(const ExchangeArgs& args, uint32_t first) { return args.into[several(args) ? first : args.rank]; }
  /// The bitwise or of the addresses of the results.
  SYMMETRA_DEVICE static uintptr_t addresses(const ExchangeArgs& args) {
    if (!several(args)) return address_bits(args.into[args.rank]);
    uintptr_t all = 0;
    SYMMETRA_ROLLED
    for (uint32_t first = 0; first < args.world; first += args.sources) all |= address_bits(args.into[first]);
    return all;
  }

  const ExchangeArgs& args_;
  uint32_t sources_;
  uint32_t items_;
  Message in_;
};

}  // namespace symmetra::kernels
