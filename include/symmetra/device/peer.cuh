// Peer addresses from inside a kernel.
#pragma once
#include "symmetra/device/abi.hpp"
#include "symmetra/device/platform.hpp"

namespace symmetra::device {

/// A symmetric buffer of T: one object on every rank. It gives addresses only; signals must order reads and writes.
template <class T>
class PeerView {
 public:
  /// `table` is in device memory; `offset_bytes` is added to each of its addresses.
  SYMMETRA_DEVICE PeerView(const PeerTable* table, uint64_t offset_bytes, uint32_t rank, uint32_t world)
      : table_(table), offset_bytes_(offset_bytes), rank_(rank), world_(world) {}

  SYMMETRA_DEVICE uint32_t rank() const { return rank_; }
  SYMMETRA_DEVICE uint32_t world() const { return world_; }
  /// The buffer of `rank`, which is less than world().
  SYMMETRA_DEVICE T* of(uint32_t rank) const { return reinterpret_cast<T*>(static_cast<char*>(table_->address[rank]) + offset_bytes_); }
  SYMMETRA_DEVICE T* mine() const { return of(rank_); }

 private:
  const PeerTable* table_;
  uint64_t offset_bytes_;
  uint32_t rank_;
  uint32_t world_;
};

static_assert(sizeof(PeerView<char>) == 24, "one layout for host and device");

}  // namespace symmetra::device
