// Sizes and places of an exchange: known to the host, or learned from the other ranks just before.
#pragma once
#include "kernels/exchange/strip.cuh"

namespace symmetra::kernels {

/// Most bytes that any rank sends any other; equal on every rank.
SYMMETRA_DEVICE uint64_t largest_bytes(const ExchangeArgs& args) {
  return args.learned != nullptr ? args.learned->largest_bytes : args.largest_bytes;
}

/// When ranks first learn whether all outputs can be addressed, the host enqueues two kernels. This function returns
/// true in the kernel that must return at once. All ranks run the same one of the two.
SYMMETRA_DEVICE bool skipped(const ExchangeArgs& args, bool direct) {
  return args.learned != nullptr && (args.learned->direct != 0) != direct;
}

/// The peer's memory that this rank reads or writes.
SYMMETRA_DEVICE uint8_t* theirs(const ExchangeArgs& args, uint32_t peer) {
  const uint64_t* offsets = args.learned != nullptr ? args.learned->theirs_bytes : args.theirs_bytes;
  return static_cast<uint8_t*>(args.table->address[peer]) + offsets[peer];
}

/// A reduction's sources: in the operands of all ranks.
struct OfPeers {
  SYMMETRA_DEVICE static const uint8_t* at(const ExchangeArgs& args, uint32_t peer) { return theirs(args, peer); }
};
/// A reduction's sources: in own memory, to which they were copied.
struct Brought {
  SYMMETRA_DEVICE static const uint8_t* at(const ExchangeArgs& args, uint32_t peer) { return args.from[peer]; }
};

}  // namespace symmetra::kernels
