// Zero-copy reduce-scatter, norm and all-gather: every rank reads the rows of its share from all inputs, reduces them,
// adds its residual, norms them, and writes the normed rows, their quantised values and scales into the memory of all
// ranks. The accesses lie between two barriers, with the flags and epochs of the zero-copy two-shot. Blocks take rows
// in a grid-stride loop.
#pragma once
#include "kernels/barrier.cuh"
#include "kernels/norm/epilogue.cuh"
#include "kernels/norm/stage.cuh"
#include "kernels/reduce.cuh"

namespace symmetra::kernels {

/// A row of the inputs of all ranks.
template <class Element, uint32_t kWorld>
class PeerRow {
 public:
  using Data = Words<4>;

  SYMMETRA_DEVICE PeerRow(const FusedNormArgs& args, uint64_t row)
      : args_(args), row_(row), reduction_{kSum, world_of<kWorld>(args.sum.world)} {}

  /// The sum of a packet.
  SYMMETRA_DEVICE Data sum(uint32_t packet) const {
    if constexpr (kWorld == 0) {
      typename Element::template Accumulator<4> total(reduction_);
      total.start(of(0).load(packet));
      for (uint32_t rank = 1; rank < reduction_.world; ++rank) total.add(of(rank).load(packet));
      return total.round();
    } else {
      Data data[kWorld];
      SYMMETRA_UNROLL
      for (uint32_t rank = 0; rank < kWorld; ++rank) data[rank] = of(rank).load(packet);
      return reduce_ranks<Element, kWorld>(data, 0, reduction_);
    }
  }

 private:
  SYMMETRA_DEVICE Row<Element> of(uint32_t rank) const {
    const auto* base = static_cast<const uint8_t*>(args_.sum.inputs->address[rank]) + args_.sum.inputs_offset_bytes;
    return Row<Element>(base, row_ * args_.norm.hidden, args_.norm.hidden);
  }

  const FusedNormArgs& args_;
  uint64_t row_;
  Reduction reduction_;
};

/// The operands of a norm whose outputs are in the memory of a rank. Lists all gathered outputs.
template <class Args>
SYMMETRA_DEVICE RowsOf<Args> outputs_of(const Args& args, uint32_t rank) {
  const auto theirs = [&](const void* own, const PeerTable* table, uint64_t offset_bytes) -> uint8_t* {
    return own == nullptr ? nullptr : static_cast<uint8_t*>(table->address[rank]) + offset_bytes;
  };
  RowsOf<Args> norm = rows_of(args);
  norm.output = theirs(norm.output, args.sum.outputs, args.sum.outputs_offset_bytes);
  norm.quantised.values = theirs(norm.quantised.values, args.values, args.values_offset_bytes);
  norm.quantised.scales = theirs(norm.quantised.scales, args.scales, args.scales_offset_bytes);
  return norm;
}

/// Sums, norms and stores one row by all threads of the block.
template <class Element, uint32_t kWorld, bool kQuantised, class Args>
SYMMETRA_DEVICE void gather_row(const Args& args, const NormShared& shared, uint64_t number) {
  const auto& norm = rows_of(args);
  const uint32_t world = world_of<kWorld>(args.sum.world), rank = args.sum.rank;
  const PeerRow<Element, kWorld> inputs(args, number);
  const Epilogue<Element, kQuantised, RowsOf<Args>> epilogue(norm, number);
  // A row that is too long for the stage is kept in this rank's own output, which peers do not read.
  const Row<Element> own(norm.output, number * norm.width, norm.hidden);
  const bool staged = own.packets() <= kStagePackets;
  const auto weights = [&](uint32_t packet) { return epilogue.weights(packet); };
  const Columns columns(shared.columns, own.packets(), epilogue.wants_largest(norm) ? shared.largest : nullptr);
  for (uint32_t column = platform::thread(); column < columns.count(); column += platform::threads()) {
    for (uint32_t packet = column; packet < own.packets(); packet += kNormColumns) {
      const Words<4> residual = epilogue.residual(packet);
      const Words<4> x = epilogue.with_residual(inputs.sum(packet), residual);
      epilogue.keep(packet, x);
      epilogue.add(columns, packet, x, weights);
      if (staged) {
        shared.stage[packet] = x;
      } else {
        own.store(packet, x);
      }
    }
  }
  const auto x_of = [&](uint32_t packet) { return staged ? shared.stage[packet] : own.load(packet); };
  const RowScale scale = epilogue.scale(columns, x_of, weights);
  // Ranks start at different peers, so that they do not all write to the same peer at once; a rank's own output is the
  // last.
  for (uint32_t k = 1; k <= world; ++k) {
    const RowsOf<Args> theirs = outputs_of(args, (rank + k) % world);
    const Epilogue<Element, kQuantised, RowsOf<Args>> store(theirs, number);
    store.norm_row(x_of, weights, scale, shared.largest);
    if (kQuantised && k < world) platform::sync_block();  // all threads have read the largest values
  }
  platform::sync_block();  // all threads have read the stage and the total
}

template <class Element, uint32_t kWorld, bool kQuantised, class Args>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) norm_gather(SYMMETRA_ARGS(Args) args) {
  const AllReduceArgs& sum = args.sum;
  const NormShared shared(0, packets_of<Element>(args.norm.hidden));
  platform::wait_prior();
  const Call call = begin_call(sum.state, sum.wait);
  BlockBarrier barrier(sum, world_of<kWorld>(sum.world), call, args.op);
  if (barrier.enter()) {
    for (uint64_t number = platform::block(); number < args.share_rows; number += platform::blocks()) {
      gather_row<Element, kWorld, kQuantised>(args, shared, sum.rank * args.share_rows + number);
    }
  }
  platform::release_next();
  barrier.leave();
  end_call(sum.state, sum.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
