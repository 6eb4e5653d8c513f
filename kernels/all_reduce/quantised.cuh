// All-reduce by codecs: one-shot and two-shot in sentinel packets, in which every rank encodes what it sends and decodes
// what it gets. A rank's own part goes through the codec too, so that all ranks have equal bits. For messages that are
// bound by the links.
//
// Regions, slots, epochs and clears are those of the plain kernels, so plain and quantised calls mix. Work between two
// syncs of a block is a loop over items: the groups of a tile, or its packets. What passes from items of one kind to
// items of the other lies in shared memory, which has a place for a tile of every rank.
#pragma once
#include "kernels/all_reduce/codec.cuh"
#include "kernels/operand.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

/// Distributes any number of items over the threads of the block, each thread in ascending order.
template <class Body>
SYMMETRA_DEVICE void share_out(uint32_t items, Body body) {
  SYMMETRA_ROLLED
  for (uint32_t item = platform::thread(); item < items; item += platform::threads()) body(item);
}

/// Some units of a share, which a block handles at once.
struct Tile {
  uint32_t start;  ///< in the share
  uint32_t first;  ///< unit of the message
  uint32_t units;  ///< fewer than a whole tile at the end of a share, or none behind it
};

/// A call with a codec, as one block sees it. kHops == 1: the message is one share.
template <class ElementType, uint32_t kHops>
class Quantised {
 public:
  SYMMETRA_DEVICE Quantised(const AllReduceArgs& args, const Call& call)
      : args_(args),
        codec_(args.codec),
        operand_(args),
        shares_((operand_.packets() + kUnitData - 1) / kUnitData, kHops == 1 ? 1 : args.world),
        scratch_(args, args.world, call),
        waiter_(args.wait, kOpAllReduce, call.epoch, call.poisoned != 0),
        shared_(platform::shared<uint8_t>()) {}

  /// Units of the largest share, and of a tile.
  SYMMETRA_DEVICE uint32_t share_units() const { return shares_.size; }
  SYMMETRA_DEVICE uint32_t tile_units() const { return (1u << args_.lanes_log2) >> kUnitGroupsLog2; }
  /// Packets of the largest share.
  SYMMETRA_DEVICE uint32_t packets() const { return shares_.size * codec_.packets(); }
  SYMMETRA_DEVICE bool gave_up() const { return waiter_.gave_up(); }

  SYMMETRA_DEVICE Tile tile(uint32_t share, uint32_t start) const {
    const uint32_t all = shares_.of(share), rest = start < all ? all - start : 0;
    return {start, shares_.first(share) + start, rest < tile_units() ? rest : tile_units()};
  }

  /// Calls `body(lane)` for every group of a tile.
  template <class Body>
  SYMMETRA_DEVICE void each_group(Body body) const {
    share_out(1u << args_.lanes_log2, body);
  }
  /// Calls `body(peer, lane)` for every group of a tile and every other rank.
  template <class Body>
  SYMMETRA_DEVICE void each_group_of_peers(Body body) const {
    each_of_peers(1u << args_.lanes_log2, body);
  }
  /// Calls `body(peer, packet)` for every packet of a tile and every other rank.
  template <class Body>
  SYMMETRA_DEVICE void each_packet_of_peers(Body body) const {
    each_of_peers(tile_units() * codec_.packets(), body);
  }

  /// Encodes a group of this rank's input, at a rank's place.
  SYMMETRA_DEVICE void encode_input(const Tile& tile, uint32_t place, uint32_t lane) const {
    if (!has_group(tile, lane)) return;
    GroupValues values;
    const uint32_t first = first_data(tile, lane);
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kGroupData; ++i) {
      float some[kDataElems];
      ElementType::unpack(operand_.load(first + i), some);
      SYMMETRA_UNROLL
      for (uint32_t k = 0; k < kDataElems; ++k) values[i * kDataElems + k] = some[k];
    }
    encode(values, place, lane);
  }

  /// Encodes a group at a rank's place.
  SYMMETRA_DEVICE void encode(const GroupValues& values, uint32_t place, uint32_t lane) const {
    codec_.encode(values, unit(place, lane), lane & kUnitGroupsMask);
  }

  /// Reduces what lies at the places of all ranks, in rank order and single precision.
  SYMMETRA_DEVICE void reduce(uint32_t lane, GroupValues& total) const {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kGroupElems; ++i) total[i] = 0;
    for (uint32_t rank = 0; rank < args_.world; ++rank) add(rank, lane, total);
    if (args_.reduction != kAverage) return;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kGroupElems; ++i) total[i] = ElementType::over(total[i], args_.world);
  }

  /// Adds the group at a rank's place to `total`.
  SYMMETRA_DEVICE void add(uint32_t place, uint32_t lane, GroupValues& total) const {
    codec_.add(unit(place, lane), lane & kUnitGroupsMask, total);
  }

  /// Writes a group of the output, rounded to the element type.
  SYMMETRA_DEVICE void store(const Tile& tile, uint32_t lane, const GroupValues& values) const {
    const uint32_t first = first_data(tile, lane);
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kGroupData; ++i) {
      float some[kDataElems];
      SYMMETRA_UNROLL
      for (uint32_t k = 0; k < kDataElems; ++k) some[k] = values[i * kDataElems + k];
      if (first + i < operand_.packets()) operand_.store(first + i, ElementType::template pack<4>(some));
    }
  }

  /// Decodes the group at a rank's place and writes it to the output.
  SYMMETRA_DEVICE void store_decoded(const Tile& tile, uint32_t place, uint32_t lane) const {
    if (!has_group(tile, lane)) return;
    GroupValues values = {};
    add(place, lane, values);
    store(tile, lane, values);
  }

  SYMMETRA_DEVICE bool has_group(const Tile& tile, uint32_t lane) const { return lane >> kUnitGroupsLog2 < tile.units; }

  /// Sends a packet at a rank's place to `peer`.
  SYMMETRA_DEVICE void send(uint32_t hop, uint32_t peer, const Tile& tile, uint32_t place, uint32_t packet) const {
    if (packet >= tile.units * codec_.packets() || waiter_.gave_up()) return;
    const Data data = platform::load_shared<Data>(at(place) + packet * sizeof(Data));
    scratch_.send(hop, pair(peer, packet), tile.start * codec_.packets(), data);
  }

  /// Waits for a packet of `peer`, and puts it at the place of `peer`.
  SYMMETRA_DEVICE void await(uint32_t hop, uint32_t peer, const Tile& tile, uint32_t packet) {
    if (packet >= tile.units * codec_.packets()) return;
    const Data data = scratch_.await(waiter_, hop, pair(peer, packet), tile.start * codec_.packets());
    platform::store_shared(at(peer) + packet * sizeof(Data), data);
  }

  /// Clears all packets that the previous call used.
  SYMMETRA_DEVICE void clear() const {
    const platform::Items pairs(args_.world << args_.lanes_log2, [&](uint32_t t) { return make_pair(args_, t, args_.world); });
    scratch_.clear_rest(pairs, 0);
  }

 private:
  using Data = Words<4>;
  /// Elements of a Data of the operand, Data of a group and of a unit.
  static constexpr uint32_t kDataElems = sizeof(Data) / ElementType::kBytes;
  static constexpr uint32_t kGroupData = kGroupElems / kDataElems, kUnitData = kUnitElems / kDataElems;
  static constexpr uint32_t kUnitGroupsMask = (1u << kUnitGroupsLog2) - 1;

  template <class Body>
  SYMMETRA_DEVICE void each_of_peers(uint32_t items, Body body) const {
    share_out((args_.world - 1) * items, [&](uint32_t item) {
      const uint32_t further = item / items, peer = args_.rank + 1 + further;  // so that ranks do not all send to one at once
      body(peer < args_.world ? peer : peer - args_.world, item - further * items);
    });
  }

  SYMMETRA_DEVICE uint32_t first_data(const Tile& tile, uint32_t lane) const { return tile.first * kUnitData + lane * kGroupData; }
  /// A rank's place, and the unit of a group there.
  SYMMETRA_DEVICE uint8_t* at(uint32_t place) const { return shared_ + place * tile_units() * codec_.packets() * sizeof(Data); }
  SYMMETRA_DEVICE uint8_t* unit(uint32_t place, uint32_t lane) const {
    return at(place) + (lane >> kUnitGroupsLog2) * codec_.packets() * sizeof(Data);
  }
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
  uint8_t* shared_;
};

template <class ElementType>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) quantised_one_shot(SYMMETRA_ARGS(AllReduceArgs) args) {
  const uint32_t rank = args.rank;
  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  Quantised<ElementType, 1> message(args, call);
  const uint32_t first = platform::block() * message.tile_units(), step = platform::blocks() * message.tile_units();
  const auto encode = [&](const Tile& tile) {
    message.each_group([&](uint32_t lane) { message.encode_input(tile, rank, lane); });
    return tile.start;
  };

  uint32_t encoded = first;  // start of the tile at this rank's place
  for (uint32_t start = first; start < message.share_units(); start += step) {
    const Tile tile = message.tile(0, start);
    encoded = encode(tile);
    platform::sync_block();
    message.each_packet_of_peers([&](uint32_t peer, uint32_t packet) { message.send(0, peer, tile, rank, packet); });
    platform::sync_block();  // all is sent: the next tile takes the place
  }
  message.clear();
  for (uint32_t start = first;; platform::sync_block()) {  // all have read what arrived
    const Tile tile = message.tile(0, start);
    if (start != encoded) encoded = encode(tile);
    message.each_packet_of_peers([&](uint32_t peer, uint32_t packet) { message.await(0, peer, tile, packet); });
    platform::sync_block();
    message.each_group([&](uint32_t lane) {
      if (!message.has_group(tile, lane)) return;
      GroupValues total;
      message.reduce(lane, total);
      message.store(tile, lane, total);
    });
    start += step;
    if (start >= message.share_units()) break;
  }
  platform::release_next();
  end_call(args.state, args.wait, call.epoch, message.packets());
}

template <class ElementType>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) quantised_two_shot(SYMMETRA_ARGS(AllReduceArgs) args) {
  const uint32_t rank = args.rank;
  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  Quantised<ElementType, 2> message(args, call);
  const uint32_t first = platform::block() * message.tile_units(), step = platform::blocks() * message.tile_units();

  for (uint32_t start = first; start < message.share_units(); start += step) {
    message.each_group_of_peers([&](uint32_t peer, uint32_t lane) { message.encode_input(message.tile(peer, start), peer, lane); });
    platform::sync_block();
    message.each_packet_of_peers([&](uint32_t peer, uint32_t packet) { message.send(0, peer, message.tile(peer, start), peer, packet); });
    platform::sync_block();  // all is sent: the next tiles take the places
  }
  message.clear();
  bool failed = false;
  for (uint32_t start = first;; start += step) {
    const Tile own = message.tile(rank, start);
    message.each_group([&](uint32_t lane) { message.encode_input(own, rank, lane); });
    message.each_packet_of_peers([&](uint32_t peer, uint32_t packet) { message.await(0, peer, own, packet); });
    // A thread without a packet has no result, so then the whole block sends none.
    failed |= platform::sync_block_or(message.gave_up());
    message.each_group([&](uint32_t lane) {
      if (!message.has_group(own, lane)) return;
      GroupValues total;
      message.reduce(lane, total);
      message.encode(total, rank, lane);  // nobody else reads the group
    });
    platform::sync_block();
    if (!failed) {
      message.each_packet_of_peers([&](uint32_t peer, uint32_t packet) { message.send(1, peer, own, rank, packet); });
    }
    message.each_group([&](uint32_t lane) { message.store_decoded(own, rank, lane); });
    platform::sync_block();  // all have read the places
    if (start + step >= message.share_units()) break;
  }
  for (uint32_t start = first; start < message.share_units(); start += step) {
    message.each_packet_of_peers([&](uint32_t peer, uint32_t packet) { message.await(1, peer, message.tile(peer, start), packet); });
    platform::sync_block();
    message.each_group_of_peers([&](uint32_t peer, uint32_t lane) { message.store_decoded(message.tile(peer, start), peer, lane); });
    platform::sync_block();  // all have read the places
  }
  platform::release_next();
  end_call(args.state, args.wait, call.epoch, message.packets());
}

}  // namespace symmetra::kernels
