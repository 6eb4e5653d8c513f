// What an exchange moves: known to the host, or learned from the other ranks just before.
#pragma once
#include "kernels/exchange/strip.cuh"

namespace symmetra::kernels {

/// Most that any rank sends any other: the same on every rank.
SYMMETRA_DEVICE uint64_t largest_bytes(const ExchangeArgs& args) {
  return args.learned != nullptr ? args.learned->largest_bytes : args.largest_bytes;
}

/// Where ranks learn of each other whether all outputs can be addressed, two kernels are enqueued,
/// and each rank runs the same one of them.
SYMMETRA_DEVICE bool skipped(const ExchangeArgs& args, bool direct) {
  return args.learned != nullptr && (args.learned->direct != 0) != direct;
}

/// The memory of a peer that this rank reads or writes.
SYMMETRA_DEVICE uint8_t* theirs(const ExchangeArgs& args, uint32_t peer) {
  const uint64_t* offsets = args.learned != nullptr ? args.learned->theirs_bytes : args.theirs_bytes;
  return static_cast<uint8_t*>(args.table->address[peer]) + offsets[peer];
}

/// What a rank reduces: of each rank, in the operand of that rank...
struct OfPeers {
  SYMMETRA_DEVICE static const uint8_t* at(const ExchangeArgs& args, uint32_t peer) { return theirs(args, peer); }
};
/// ...or in own memory, where it has been brought.
struct Brought {
  SYMMETRA_DEVICE static const uint8_t* at(const ExchangeArgs& args, uint32_t peer) { return args.from[peer]; }
};

}  // namespace symmetra::kernels
