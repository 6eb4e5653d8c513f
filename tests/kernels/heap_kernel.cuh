// Kernels of a user's that call every function of symmetra/device/heap.cuh, on every platform.
#pragma once
#include "symmetra/device/heap.cuh"

namespace trial {

using namespace symmetra;
using device::Heap;
using device::Order;
using device::Scope;

/// The number of the unit (thread, warp or block) among all units of its kind in the launch, and the number of these
/// units.
template <class Who>
SYMMETRA_DEVICE uint32_t unit() {
  if constexpr (std::is_same_v<Who, device::Block>) return platform::block();
  return (platform::block() * platform::threads() + platform::thread()) / Who::count();
}
template <class Who>
SYMMETRA_DEVICE uint32_t units() {
  if constexpr (std::is_same_v<Who, device::Block>) return platform::blocks();
  return platform::blocks() * platform::threads() / Who::count();
}

/// A barrier of units of equal number on all ranks, on their channel.
template <class Who>
SYMMETRA_DEVICE bool meet(const Heap& heap, device::Channel channel) {
  bool met = true;
  Who::sync();
  if (Who::number() == 0) {
    for (uint32_t rank = 0; rank < heap.signals.world; ++rank) device::put(heap.signals, device::Rank{rank}, channel);
    for (uint32_t rank = 0; rank < heap.signals.world; ++rank) met &= device::wait(heap.signals, device::Rank{rank}, channel);
  }
  return !Who::sync_or(!met);
}

/// Bytes to move: how many, and how far source and target are off a multiple of 16.
struct Move {
  uint32_t bytes;
  uint32_t to_shift;
  uint32_t from_shift;
};

/// Bytes of a unit for the data that it sends, and for the data that it receives.
constexpr uint32_t kRoomBytes = 4224;
constexpr uint8_t kUntouched = 0xEE;

/// Arguments of a kernel that makes the moves of a list. For each unit there are two areas a unit in `rooms`; `wrong`
/// counts errors.
struct MoveArgs {
  Heap heap;
  uint8_t* rooms;
  uint32_t* wrong;
  const Move* moves;
  uint32_t count;
};

SYMMETRA_DEVICE uint8_t pattern(uint32_t rank, uint32_t unit, uint32_t move, uint32_t byte) {
  return static_cast<uint8_t>((rank * 31 + unit * 17 + move * 7 + byte * 5 + byte / 251) % 229);
}

/// Fills the bytes of a unit, all threads of the unit together.
template <class Who, class Make>
SYMMETRA_DEVICE void fill(uint8_t* room, Make make) {
  for (uint32_t byte = Who::number(); byte < kRoomBytes; byte += Who::count()) room[byte] = make(byte);
}

/// The number of wrong bytes: those of `source` must be in their place, and all others untouched.
template <class Who>
SYMMETRA_DEVICE uint32_t wrong_bytes(const uint8_t* room, const Move& move, uint32_t source, uint32_t unit, uint32_t number) {
  uint32_t wrong = 0;
  for (uint32_t byte = Who::number(); byte < kRoomBytes; byte += Who::count()) {
    const bool inside = byte >= move.to_shift && byte < move.to_shift + move.bytes;
    const uint8_t expected = inside ? pattern(source, unit, number, byte - move.to_shift + move.from_shift) : kUntouched;
    wrong += room[byte] != expected;
  }
  return wrong;
}

/// Puts, puts with signals, gets and copies between neighbours.
template <class Who>
SYMMETRA_DEVICE void move_all(const MoveArgs& args) {
  const Heap& heap = args.heap;
  const uint32_t rank = heap.signals.rank, world = heap.signals.world, me = unit<Who>();
  const device::Channel channel{me};
  const uint32_t previous = (rank + world - 1) % world, next = (rank + 1) % world;
  const device::Rank following{next}, preceding{previous};
  uint8_t *const sent = args.rooms + 2 * me * kRoomBytes, *const received = sent + kRoomBytes;
  uint32_t wrong = 0;
  for (uint32_t number = 0; number < args.count; ++number) {
    const Move move = args.moves[number];
    for (uint32_t way = 0; way < 4; ++way) {
      fill<Who>(sent, [&](uint32_t byte) { return pattern(rank, me, number, byte); });
      fill<Who>(received, [](uint32_t) { return kUntouched; });
      if (!meet<Who>(heap, channel)) return;
      uint8_t *const to = received + move.to_shift, *const from = sent + move.from_shift;
      uint32_t source = previous;
      bool arrived = true;
      if (way == 0) {
        device::put_signal<Who>(heap, to, from, following, move.bytes, channel);
        arrived = device::wait_signal<Who>(heap, preceding, channel);
      } else if (way == 1) {
        device::put<Who>(heap, to, from, following, move.bytes);
        arrived = meet<Who>(heap, channel);
      } else if (way == 2) {
        device::get<Who>(heap, to, from, following, move.bytes);
        source = next;
        Who::sync();
      } else {
        device::copy<Who>(heap, to, following, from, preceding, move.bytes);
        source = (rank + 2 * world - 2) % world;
        arrived = meet<Who>(heap, channel);
      }
      if (!arrived) return;
      wrong += wrong_bytes<Who>(received, move, source, me, number);
      if (!meet<Who>(heap, channel)) return;
    }
  }
  device::add<Order::kRelaxed>(heap, args.wrong, wrong);
}

/// A value of a rank's thread, whose bytes follow the pattern.
template <class T>
SYMMETRA_DEVICE T value_of(uint32_t rank, uint32_t thread) {
  T value;
  auto* const bytes = reinterpret_cast<uint8_t*>(&value);
  for (uint32_t byte = 0; byte < sizeof(T); ++byte) bytes[byte] = pattern(rank, thread, sizeof(T), byte);
  return value;
}
template <class T>
SYMMETRA_DEVICE bool equal(const T& left, const T& right) {
  const auto *const one = reinterpret_cast<const uint8_t*>(&left), *const other = reinterpret_cast<const uint8_t*>(&right);
  bool same = true;
  for (uint32_t byte = 0; byte < sizeof(T); ++byte) same &= one[byte] == other[byte];
  return same;
}

struct TypedArgs {
  Heap heap;
  uint8_t* places;  ///< two values of 16 bytes for each thread of each rank
  uint32_t* wrong;
};

/// Stores to every rank, and loads from every rank the stored words and the rank's own words.
template <class T>
SYMMETRA_DEVICE void store_and_load(const TypedArgs& args) {
  const Heap& heap = args.heap;
  const uint32_t me = unit<device::Thread>(), all = units<device::Thread>(), own = heap.signals.rank;
  T* const given = reinterpret_cast<T*>(args.places);
  T* const mine = given + heap.signals.world * all;
  for (uint32_t rank = 0; rank < heap.signals.world; ++rank)
    device::store(heap, given + own * all + me, device::Rank{rank}, value_of<T>(own, me));
  device::store(heap, mine + me, device::Rank{own}, value_of<T>(own + 3, me));
  if (!meet<device::Thread>(heap, device::Channel{me})) return;
  uint32_t wrong = 0;
  for (uint32_t rank = 0; rank < heap.signals.world; ++rank) {
    wrong += !equal(device::load(heap, mine + me, device::Rank{rank}), value_of<T>(rank + 3, me));
    for (uint32_t source = 0; source < heap.signals.world; ++source) {
      wrong += !equal(device::load(heap, given + source * all + me, device::Rank{rank}), value_of<T>(source, me));
    }
  }
  device::add<Order::kRelaxed>(heap, args.wrong, wrong);
  meet<device::Thread>(heap, device::Channel{me});
}

}  // namespace trial
