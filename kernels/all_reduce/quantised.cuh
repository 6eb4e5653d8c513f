// All-reduce by codecs: one-shot and two-shot, in which every rank encodes the values that it sends and decodes the
// values that it receives. A rank's own part passes through the codec too, so that all ranks have equal bits. For
// messages that are bound by the links.
//
// Regions, buffers and epochs are those of the sentinel protocol, so plain and quantised calls mix. A rank does not
// send to itself: the slots of a buffer are divided among the other ranks. A source's slot has the quantised values of
// all units, followed by the scales of all units. A team of threads handles a unit. A thread has lanes of the unit in
// registers, from the input to the link and from the link to the output, so that threads exchange only the largest
// value of a group. The thread that has read a lane clears it: no peer writes the buffer again before call k + 3.
#pragma once
#include "kernels/all_reduce/codec.cuh"
#include "kernels/operand.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

/// No unit.
constexpr uint32_t kNoUnit = ~0u;

/// A call with a codec, as one team sees it. kHops == 1: the message is one share.
template <class ElementType, class Code, uint32_t kHops>
class Quantised {
 public:
  using Lane = EncodedLane<Code>;
  /// The lanes of a unit that a thread has, and those among them that have one group of each half.
  static constexpr uint32_t kLanes = kUnitLanes / platform::kTeam;
  static constexpr uint32_t kRun = kLanes < kGroupLanes ? kLanes : kGroupLanes;
  /// The data of a unit that a thread has.
  using Values = LaneValues[kLanes];
  struct Encoded {
    Lane lane[kLanes];
  };

  SYMMETRA_DEVICE Quantised(const AllReduceArgs& args, const Call& call)
      : args_(args),
        operand_(args),
        shares_((operand_.packets() + kUnitData - 1) / kUnitData, kHops == 1 ? 1 : args.world),
        slot_(static_cast<uint32_t>(args.slot_packets) * args.world / (args.world - 1) / kLinePackets * kLinePackets),
        scratch_(args, args.world, call),
        waiter_(args.wait, kOpAllReduce, call.epoch, call.poisoned != 0),
        member_(platform::thread() % platform::kTeam) {}

  SYMMETRA_DEVICE bool gave_up() const { return waiter_.gave_up(); }

  /// Calls `body(unit)` for every unit of a largest share that this team handles.
  template <class Body>
  SYMMETRA_DEVICE void each_unit(Body body) const {
    const uint32_t teams = platform::threads() / platform::kTeam, team = platform::thread() / platform::kTeam;
    if (team >= teams) return;  // threads of an incomplete team
    SYMMETRA_ROLLED
    for (uint32_t unit = platform::block() * teams + team; unit < shares_.size; unit += platform::blocks() * teams) body(unit);
  }
  /// Calls `body(peer)` for every other rank, starting at the next, so that ranks do not all send to the same rank at
  /// once.
  template <class Body>
  SYMMETRA_DEVICE void each_peer(Body body) const {
    SYMMETRA_ROLLED
    for (uint32_t i = 1; i < args_.world; ++i) {
      const uint32_t peer = args_.rank + i;
      body(peer < args_.world ? peer : peer - args_.world);
    }
  }
  /// Whether a share has the unit.
  SYMMETRA_DEVICE bool has(uint32_t share, uint32_t unit) const { return unit < shares_.of(share); }

  /// Encodes a unit of a share of this rank's input.
  SYMMETRA_DEVICE Encoded encoded_input(uint32_t share, uint32_t unit) const {
    Values values;
    each_data(
        share, unit, [&](Octet& octet, uint32_t data) { ElementType::unpack(operand_.load(data), octet); }, values);
    return encoded(values);
  }

  /// All threads of the team call it.
  SYMMETRA_DEVICE Encoded encoded(const Values& values) const {
    Encoded unit;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kLanes; i += kRun) {
      uint32_t most[2] = {};
      SYMMETRA_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        SYMMETRA_UNROLL
        for (uint32_t k = i; k < i + kRun; ++k) {
          const uint32_t size = most_of(values[k][half]);
          most[half] = size > most[half] ? size : most[half];
        }
        most[half] = platform::team_max(kGroupLanes / kRun, most[half]);
      }
      SYMMETRA_UNROLL
      for (uint32_t k = i; k < i + kRun; ++k) unit.lane[k] = encode<Code>(values[k], most);
    }
    return unit;
  }

  /// Sends a unit of a hop to `peer`.
  SYMMETRA_DEVICE void send(uint32_t hop, uint32_t peer, uint32_t unit, const Encoded& encoded) const {
    if (waiter_.gave_up()) return;
    const Slot slot = slot_of(hop, args_.rank, peer);
    each_lane([&](uint32_t i, uint32_t lane) { store(slot, unit, lane, encoded.lane[i]); });
  }

  /// Waits for a unit of a hop from `peer`, and clears it. All threads of the team call it.
  SYMMETRA_DEVICE Encoded await(uint32_t hop, uint32_t peer, uint32_t unit) {
    const Slot slot = slot_of(hop, peer, args_.rank);
    Encoded encoded;
    each_lane([&](uint32_t i, uint32_t lane) {
      waiter_.until(peer, [&] {
        encoded.lane[i] = load(slot, unit, lane);
        return arrived(encoded.lane[i]);
      });
    });
    platform::sync_team();  // lanes share a word of scales
    if (waiter_.gave_up()) return encoded;
    Lane empty;
    for (uint32_t& word : empty.codes) word = Protocol::kMissing;
    empty.scales = Protocol::kMissing;
    each_lane([&](uint32_t, uint32_t lane) { store(slot, unit, lane, empty); });
    return encoded;
  }

  /// Waits for a unit from all peers, and reduces them and this rank's, in rank order and single precision.
  SYMMETRA_DEVICE void await_reduced(uint32_t hop, uint32_t unit, const Encoded& own, Values& totals) {
    zero(totals);
    SYMMETRA_ROLLED
    for (uint32_t rank = 0; rank < args_.world; ++rank) {
      if (rank == args_.rank) {
        add_all(own, totals);
      } else {
        add_all(await(hop, rank, unit), totals);
      }
    }
    if (args_.reduction != kAverage) return;
    each_value(totals, [&](float& value) { value = ElementType::over(value, args_.world); });
  }

  /// Writes a unit of a share of the output, rounded to the element type.
  SYMMETRA_DEVICE void store_values(uint32_t share, uint32_t unit, Values& values) const {
    each_data(
        share, unit,
        [&](Octet& octet, uint32_t data) {
          if (data < operand_.packets()) operand_.store(data, ElementType::template pack<4>(octet));
        },
        values);
  }

  /// Decodes a unit of a share and writes it to the output.
  SYMMETRA_DEVICE void store_decoded(uint32_t share, uint32_t unit, const Encoded& encoded) const {
    Values values;
    zero(values);
    add_all(encoded, values);
    store_values(share, unit, values);
  }

  /// Clears all packets that the previous call used.
  SYMMETRA_DEVICE void clear() const {
    const platform::Items pairs(args_.world << args_.lanes_log2, [&](uint32_t t) { return make_pair(args_, t, args_.world); });
    scratch_.clear_rest(pairs, 0);
  }

 private:
  using Protocol = Sentinel<ElementType>;
  using Data = Words<4>;
  static_assert(sizeof(Data) == kOctetElems * ElementType::kBytes, "a Data of the operand is an octet");
  static constexpr uint32_t kUnitData = 2 * kUnitLanes;
  /// The quantised values of a lane are sent in parts, each of which one access moves. Consecutive lanes have
  /// consecutive parts.
  static constexpr uint32_t kPart = Lane::kWords % 4 == 0 ? 4 : Lane::kWords % 2 == 0 ? 2 : 1, kParts = Lane::kWords / kPart;

  /// The slot of a source in the memory of a rank.
  struct Slot {
    uint32_t* codes;
    uint32_t* scales;
  };
  SYMMETRA_DEVICE Slot slot_of(uint32_t hop, uint32_t source, uint32_t rank) const {
    Packet* const packets = scratch_.sources(hop, rank) + (source < rank ? source : source - 1) * slot_;
    uint32_t* const codes = reinterpret_cast<uint32_t*>(packets);
    return {codes, codes + uint64_t{shares_.size} * (kUnitLanes * Lane::kWords)};
  }
  SYMMETRA_DEVICE static uint32_t* part(const Slot& slot, uint32_t unit, uint32_t lane, uint32_t i) {
    return slot.codes + unit * (kUnitLanes * Lane::kWords) + (i * kUnitLanes + lane) * kPart;
  }
  SYMMETRA_DEVICE static uint32_t* scales(const Slot& slot, uint32_t unit, uint32_t lane) {
    return slot.scales + (unit * kUnitLanes + lane) / kGroupLanes;
  }
  SYMMETRA_DEVICE static void store(const Slot& slot, uint32_t unit, uint32_t lane, const Lane& encoded) {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kParts; ++i) store_words<kPart>(part(slot, unit, lane, i), encoded.codes + i * kPart, Protocol::kMask);
    if (lane % kGroupLanes == 0) store_words<1>(scales(slot, unit, lane), &encoded.scales, Protocol::kMask);
  }
  SYMMETRA_DEVICE static Lane load(const Slot& slot, uint32_t unit, uint32_t lane) {
    Lane encoded;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kParts; ++i) load_words<kPart>(part(slot, unit, lane, i), encoded.codes + i * kPart, Protocol::kMask);
    load_words<1>(scales(slot, unit, lane), &encoded.scales, Protocol::kMask);
    return encoded;
  }
  SYMMETRA_DEVICE static bool arrived(const Lane& lane) {
    bool all = lane.scales != Protocol::kMissing;
    SYMMETRA_UNROLL
    for (const uint32_t word : lane.codes) all &= word != Protocol::kMissing;
    return all;
  }

  template <class Body>
  SYMMETRA_DEVICE void each_lane(Body body) const {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kLanes; ++i) body(i, member_ + i * platform::kTeam);
  }
  /// Calls `body(octet, data)` for the values of a unit that this thread has, with the Data of the operand that
  /// contains them.
  template <class Body>
  SYMMETRA_DEVICE void each_data(uint32_t share, uint32_t unit, Body body, Values& values) const {
    const uint32_t first = (shares_.first(share) + unit) * kUnitData;
    each_lane([&](uint32_t i, uint32_t lane) {
      SYMMETRA_UNROLL
      for (uint32_t half = 0; half < 2; ++half) body(values[i][half], first + half * kUnitLanes + lane);
    });
  }
  template <class Body>
  SYMMETRA_DEVICE static void each_value(Values& values, Body body) {
    SYMMETRA_UNROLL
    for (LaneValues& lane : values) {
      SYMMETRA_UNROLL
      for (Octet& octet : lane) {
        SYMMETRA_UNROLL
        for (float& value : octet) body(value);
      }
    }
  }
  SYMMETRA_DEVICE static void zero(Values& values) {
    each_value(values, [](float& value) { value = 0; });
  }
  SYMMETRA_DEVICE static void add_all(const Encoded& encoded, Values& totals) {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kLanes; ++i) add(encoded.lane[i], totals[i]);
  }

  const AllReduceArgs& args_;
  Operand<ElementType, Data> operand_;
  Shares shares_;
  uint32_t slot_;  ///< packets of a source, see quantised_slot
  Scratch<Protocol, kHops> scratch_;
  device::Waiter waiter_;
  uint32_t member_;  ///< number of this thread in its team
};

template <class ElementType, class Code>
SYMMETRA_DEVICE void reduce_in_one_shot(const AllReduceArgs& args, const Call& call) {
  using Message = Quantised<ElementType, Code, 1>;
  Message message(args, call);
  const auto receive = [&](uint32_t unit, const typename Message::Encoded& own) {
    typename Message::Values totals;
    message.await_reduced(0, unit, own, totals);
    message.store_values(0, unit, totals);
  };

  message.clear();
  // A unit is in transit while the team encodes the next one.
  uint32_t last = kNoUnit;
  typename Message::Encoded sent;
  message.each_unit([&](uint32_t unit) {
    const auto own = message.encoded_input(0, unit);
    message.each_peer([&](uint32_t peer) { message.send(0, peer, unit, own); });
    if (last != kNoUnit) receive(last, sent);
    last = unit;
    sent = own;
  });
  platform::release_next();
  if (last != kNoUnit) receive(last, sent);
}

template <class ElementType, class Code>
SYMMETRA_DEVICE void reduce_in_two_shots(const AllReduceArgs& args, const Call& call) {
  using Message = Quantised<ElementType, Code, 2>;
  const uint32_t rank = args.rank;
  Message message(args, call);

  message.each_unit([&](uint32_t unit) {
    message.each_peer([&](uint32_t peer) {
      if (message.has(peer, unit)) message.send(0, peer, unit, message.encoded_input(peer, unit));
    });
  });
  message.clear();
  message.each_unit([&](uint32_t unit) {
    if (!message.has(rank, unit)) return;
    typename Message::Values totals;
    message.await_reduced(0, unit, message.encoded_input(rank, unit), totals);
    // A thread without a lane has no result, so the whole team sends nothing.
    const bool failed = platform::sync_team_or(message.gave_up());
    const auto sum = message.encoded(totals);
    if (!failed) message.each_peer([&](uint32_t peer) { message.send(1, peer, unit, sum); });
    message.store_decoded(rank, unit, sum);
  });
  platform::release_next();
  message.each_unit([&](uint32_t unit) {
    message.each_peer([&](uint32_t peer) {
      if (message.has(peer, unit)) message.store_decoded(peer, unit, message.await(1, peer, unit));
    });
  });
}

/// The recorded state is that the call used no packets, because the call has cleared all packets that it used.
template <class ElementType, class Code>
SYMMETRA_KERNEL void SYMMETRA_BLOCKS_AT_ONCE(512, 2) quantised_one_shot(SYMMETRA_ARGS(AllReduceArgs) args) {
  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  reduce_in_one_shot<ElementType, Code>(args, call);
  platform::sync_block();  // all threads have read the state
  end_call(args.state, args.wait, call.epoch, 0);
}

/// The recorded state is that the call used no packets, because the call has cleared all packets that it used.
template <class ElementType, class Code>
SYMMETRA_KERNEL void SYMMETRA_BLOCKS_AT_ONCE(512, 2) quantised_two_shot(SYMMETRA_ARGS(AllReduceArgs) args) {
  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  reduce_in_two_shots<ElementType, Code>(args, call);
  platform::sync_block();  // all threads have read the state
  end_call(args.state, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
