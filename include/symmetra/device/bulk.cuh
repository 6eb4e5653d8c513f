// Bytes that threads copy together.
#pragma once
#include "symmetra/device/platform.hpp"

namespace symmetra::device {

/// The threads that call a function together. All of them call it, with equal arguments.
///
/// A single thread.
struct Thread {
  SYMMETRA_DEVICE static uint32_t number() { return 0; }
  SYMMETRA_DEVICE static uint32_t count() { return 1; }
  SYMMETRA_DEVICE static void sync() {}
  SYMMETRA_DEVICE static bool sync_or(bool vote) { return vote; }
};

/// A team: platform::kTeam consecutive threads. A team is a warp, on AMD GPUs half a wavefront, on the CPU one thread.
/// The number of threads of the block must be a multiple.
struct Warp {
  SYMMETRA_DEVICE static uint32_t number() { return platform::thread() % platform::kTeam; }
  SYMMETRA_DEVICE static uint32_t count() { return platform::kTeam; }
  SYMMETRA_DEVICE static void sync() { platform::sync_team(); }
  SYMMETRA_DEVICE static bool sync_or(bool vote) { return platform::sync_team_or(vote); }
};

/// All threads of the block.
struct Block {
  SYMMETRA_DEVICE static uint32_t number() { return platform::thread(); }
  SYMMETRA_DEVICE static uint32_t count() { return platform::threads(); }
  SYMMETRA_DEVICE static void sync() { platform::sync_block(); }
  SYMMETRA_DEVICE static bool sync_or(bool vote) { return platform::sync_block_or(vote); }
};

namespace bulk {

/// Units that a thread reads before it writes the first.
constexpr uint32_t kAtOnce = 4;

/// Copies bytes whose addresses are equally far from a multiple of a Unit's size.
template <class Unit, class Who>
SYMMETRA_DEVICE void copy_by(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  const uint64_t first = Who::number(), step = Who::count();
  uint64_t head = (uint64_t{0} - reinterpret_cast<uintptr_t>(to)) % sizeof(Unit);
  if (head > bytes) head = bytes;
  for (uint64_t i = first; i < head; i += step) platform::store(to + i, platform::load<uint8_t>(from + i));
  const uint64_t units = (bytes - head) / sizeof(Unit);
  uint8_t* const into = to + head;
  const uint8_t* const source = from + head;
  uint64_t i = first;
  SYMMETRA_ROLLED
  for (; i + (kAtOnce - 1) * step < units; i += kAtOnce * step) {
    Unit unit[kAtOnce];
    SYMMETRA_UNROLL
    for (uint32_t n = 0; n < kAtOnce; ++n) unit[n] = platform::load<Unit>(source + (i + n * step) * sizeof(Unit));
    SYMMETRA_UNROLL
    for (uint32_t n = 0; n < kAtOnce; ++n) platform::store(into + (i + n * step) * sizeof(Unit), unit[n]);
  }
  SYMMETRA_ROLLED
  for (; i < units; i += step) platform::store(into + i * sizeof(Unit), platform::load<Unit>(source + i * sizeof(Unit)));
  for (uint64_t tail = head + units * sizeof(Unit) + first; tail < bytes; tail += step) {
    platform::store(to + tail, platform::load<uint8_t>(from + tail));
  }
}

/// Copies bytes of any alignment in device memory, in the largest units that both addresses allow.
template <class Who>
SYMMETRA_DEVICE void copy(void* to, const void* from, uint64_t bytes) {
  auto* const into = static_cast<uint8_t*>(to);
  const auto* const source = static_cast<const uint8_t*>(from);
  const auto apart = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(into) - reinterpret_cast<uintptr_t>(source));
  if (apart % 16 == 0) {
    copy_by<platform::Packet, Who>(into, source, bytes);
  } else if (apart % 4 == 0) {
    copy_by<uint32_t, Who>(into, source, bytes);
  } else {
    copy_by<uint8_t, Who>(into, source, bytes);
  }
}

}  // namespace bulk

}  // namespace symmetra::device
