// All-reduce by codecs: one-shot and two-shot in sentinel packets, in which every rank encodes what it sends and decodes
// what it gets. A rank's own part goes through the codec too, so that all ranks have equal bits. For messages that are
// bound by the links.
//
// Regions, slots, epochs and clears are those of the plain kernels, so plain and quantised calls mix. A team of threads
// handles a unit: a thread encodes and decodes octets, and moves packets. What passes between threads of a team lies in
// the team's part of the block's memory, which has a place for a unit of every rank, and one more. Teams do not wait for
// each other.
#pragma once
#include "kernels/all_reduce/codec.cuh"
#include "kernels/operand.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

/// No unit.
constexpr uint32_t kNoUnit = ~0u;

/// A call with a codec, as one team sees it. kHops == 1: the message is one share.
template <class ElementType, uint32_t kHops>
class Quantised {
 public:
  /// The octets of a unit that a thread has, and those among them that belong to one group.
  static constexpr uint32_t kOctets = kUnitOctets / platform::kTeam;
  static constexpr uint32_t kRun = kOctets < kGroupOctets ? kOctets : kGroupOctets;
  using Values = Octet[kOctets];

  SYMMETRA_DEVICE Quantised(const AllReduceArgs& args, const Call& call)
      : args_(args),
        codec_(args.codec),
        operand_(args),
        shares_((operand_.packets() + kUnitOctets - 1) / kUnitOctets, kHops == 1 ? 1 : args.world),
        scratch_(args, args.world, call),
        waiter_(args.wait, kOpAllReduce, call.epoch, call.poisoned != 0),
        member_(platform::thread() % platform::kTeam),
        places_(platform::shared<uint8_t>() + platform::thread() / platform::kTeam * (args.world + 1) * codec_.packets() * sizeof(Data)) {}

  /// Packets of the largest share.
  SYMMETRA_DEVICE uint32_t packets() const { return shares_.size * codec_.packets(); }
  SYMMETRA_DEVICE bool gave_up() const { return waiter_.gave_up(); }

  /// Calls `body(unit)` for every unit of a largest share that this team handles.
  template <class Body>
  SYMMETRA_DEVICE void each_unit(Body body) const {
    const uint32_t teams = platform::threads() / platform::kTeam, team = platform::thread() / platform::kTeam;
    if (team >= teams) return;  // threads of no whole team
    SYMMETRA_ROLLED
    for (uint32_t unit = platform::block() * teams + team; unit < shares_.size; unit += platform::blocks() * teams) body(unit);
  }
  /// Calls `body(peer)` for every other rank, the next first, so that ranks do not all send to one at once.
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

  /// Encodes a unit of a share of this rank's input, at a place.
  SYMMETRA_DEVICE void encode_input(uint32_t share, uint32_t unit, uint32_t place) const {
    const uint32_t first = data_of(share, unit);
    Values values;
    each_octet([&](uint32_t i, uint32_t octet) { ElementType::unpack(operand_.load(first + octet), values[i]); });
    encode(values, place);
  }

  /// Encodes a unit at a place that all threads of the team have read.
  SYMMETRA_DEVICE void encode(const Values& values, uint32_t place) const {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kOctets; i += kRun) {
      uint32_t most = 0;
      SYMMETRA_UNROLL
      for (uint32_t k = i; k < i + kRun; ++k) {
        const uint32_t size = most_of(values[k]);
        most = size > most ? size : most;
      }
      most = platform::team_max(kGroupOctets / kRun, most);
      SYMMETRA_UNROLL
      for (uint32_t k = i; k < i + kRun; ++k) codec_.encode(values[k], most, at(place), member_ + k * platform::kTeam);
    }
    platform::sync_team();
  }

  /// Sends what lies at a place to `peer`, as a unit of a hop.
  SYMMETRA_DEVICE void send(uint32_t hop, uint32_t peer, uint32_t unit, uint32_t place) const {
    if (waiter_.gave_up()) return;
    each_packet([&](uint32_t packet) {
      const Data data = platform::load_shared<Data>(at(place) + packet * sizeof(Data));
      scratch_.send(hop, pair(peer, packet), unit * codec_.packets(), data);
    });
  }

  /// Waits for a unit of a hop from `peer`, and puts the unit at the place of `peer`.
  SYMMETRA_DEVICE void await(uint32_t hop, uint32_t peer, uint32_t unit) {
    each_packet([&](uint32_t packet) {
      const Data data = scratch_.await(waiter_, hop, pair(peer, packet), unit * codec_.packets());
      platform::store_shared(at(peer) + packet * sizeof(Data), data);
    });
  }

  /// Reduces the units at the places of all ranks, in rank order and single precision. `own`: the place of this rank's.
  SYMMETRA_DEVICE void reduce(uint32_t own, Values& total) const {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kOctets; ++i) {
      SYMMETRA_UNROLL
      for (uint32_t k = 0; k < kOctetElems; ++k) total[i][k] = 0;
    }
    SYMMETRA_ROLLED
    for (uint32_t rank = 0; rank < args_.world; ++rank) {
      const uint8_t* const unit = at(rank == args_.rank ? own : rank);
      each_octet([&](uint32_t i, uint32_t octet) { codec_.add(unit, octet, total[i]); });
    }
    if (args_.reduction != kAverage) return;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kOctets; ++i) {
      SYMMETRA_UNROLL
      for (uint32_t k = 0; k < kOctetElems; ++k) total[i][k] = ElementType::over(total[i][k], args_.world);
    }
  }

  /// Writes a unit of a share of the output, rounded to the element type.
  SYMMETRA_DEVICE void store(uint32_t share, uint32_t unit, const Values& values) const {
    const uint32_t first = data_of(share, unit);
    each_octet([&](uint32_t i, uint32_t octet) {
      if (first + octet < operand_.packets()) operand_.store(first + octet, ElementType::template pack<4>(values[i]));
    });
  }

  /// Decodes the unit at a place and writes it to the output.
  SYMMETRA_DEVICE void store_decoded(uint32_t share, uint32_t unit, uint32_t place) const {
    Values values = {};
    each_octet([&](uint32_t i, uint32_t octet) { codec_.add(at(place), octet, values[i]); });
    store(share, unit, values);
  }

  /// Clears all packets that the previous call used.
  SYMMETRA_DEVICE void clear() const {
    const platform::Items pairs(args_.world << args_.lanes_log2, [&](uint32_t t) { return make_pair(args_, t, args_.world); });
    scratch_.clear_rest(pairs, 0);
  }

 private:
  using Data = Words<4>;
  static_assert(sizeof(Data) == kOctetElems * ElementType::kBytes, "a Data of the operand is an octet");

  template <class Body>
  SYMMETRA_DEVICE void each_octet(Body body) const {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kOctets; ++i) body(i, member_ + i * platform::kTeam);
  }
  template <class Body>
  SYMMETRA_DEVICE void each_packet(Body body) const {
    SYMMETRA_ROLLED
    for (uint32_t packet = member_; packet < codec_.packets(); packet += platform::kTeam) body(packet);
  }

  /// The first Data of a unit of a share.
  SYMMETRA_DEVICE uint32_t data_of(uint32_t share, uint32_t unit) const { return (shares_.first(share) + unit) * kUnitOctets; }
  SYMMETRA_DEVICE uint8_t* at(uint32_t place) const { return places_ + place * codec_.packets() * sizeof(Data); }
  SYMMETRA_DEVICE Pair pair(uint32_t peer, uint32_t packet) const {
    const uint32_t slot = static_cast<uint32_t>(args_.slot_packets);
    Pair pair{};
    pair.peer = peer;
    pair.to = reinterpret_cast<Packet*>(args_.peers[peer]) + (args_.rank * slot + packet);
    pair.from = reinterpret_cast<Packet*>(args_.peers[args_.rank]) + (peer * slot + packet);
    return pair;
  }

  const AllReduceArgs& args_;
  Codec codec_;
  Operand<ElementType, Data> operand_;
  Shares shares_;
  Scratch<Sentinel<ElementType>, kHops> scratch_;
  device::Waiter waiter_;
  uint32_t member_;  ///< number of this thread in its team
  uint8_t* places_;
};

template <class ElementType>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) quantised_one_shot(SYMMETRA_ARGS(AllReduceArgs) args) {
  const uint32_t rank = args.rank, spare = args.world;
  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  using Message = Quantised<ElementType, 1>;
  Message message(args, call);
  const auto receive = [&](uint32_t unit, uint32_t own) {
    if (unit == kNoUnit) return;
    message.each_peer([&](uint32_t peer) { message.await(0, peer, unit); });
    platform::sync_team();
    typename Message::Values total;
    message.reduce(own, total);
    message.store(0, unit, total);
    platform::sync_team();  // all have read the places
  };

  message.clear();
  // A unit travels while the team encodes the next one.
  uint32_t sent = kNoUnit, place = rank;
  message.each_unit([&](uint32_t unit) {
    message.encode_input(0, unit, place);
    message.each_peer([&](uint32_t peer) { message.send(0, peer, unit, place); });
    place = rank + spare - place;
    receive(sent, place);
    sent = unit;
  });
  platform::release_next();
  receive(sent, rank + spare - place);
  platform::sync_block();  // all have read the state
  end_call(args.state, args.wait, call.epoch, message.packets());
}

template <class ElementType>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) quantised_two_shot(SYMMETRA_ARGS(AllReduceArgs) args) {
  const uint32_t rank = args.rank;
  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  using Message = Quantised<ElementType, 2>;
  Message message(args, call);

  message.each_unit([&](uint32_t unit) {
    message.each_peer([&](uint32_t peer) {
      if (!message.has(peer, unit)) return;
      message.encode_input(peer, unit, peer);
      message.send(0, peer, unit, peer);
    });
    platform::sync_team();  // all is sent: the next units take the places
  });
  message.clear();
  message.each_unit([&](uint32_t unit) {
    if (!message.has(rank, unit)) return;
    message.encode_input(rank, unit, rank);
    message.each_peer([&](uint32_t peer) { message.await(0, peer, unit); });
    // A thread without a packet has no result, so then the whole team sends none.
    const bool failed = platform::sync_team_or(message.gave_up());
    typename Message::Values total;
    message.reduce(rank, total);
    platform::sync_team();  // all have read the places
    message.encode(total, rank);
    if (!failed) message.each_peer([&](uint32_t peer) { message.send(1, peer, unit, rank); });
    message.store_decoded(rank, unit, rank);
    platform::sync_team();  // all have read the place
  });
  platform::release_next();
  message.each_unit([&](uint32_t unit) {
    message.each_peer([&](uint32_t peer) {
      if (message.has(peer, unit)) message.await(1, peer, unit);
    });
    platform::sync_team();
    message.each_peer([&](uint32_t peer) {
      if (message.has(peer, unit)) message.store_decoded(peer, unit, peer);
    });
    platform::sync_team();  // all have read the places
  });
  platform::sync_block();  // all have read the state
  end_call(args.state, args.wait, call.epoch, message.packets());
}

}  // namespace symmetra::kernels
