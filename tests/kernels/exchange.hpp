// Exchanges of a group on the host platform: random strips between all pairs of ranks, in every way there
// is, one call after another in one set of regions.
#pragma once
#include "tests/kernels/group.hpp"

namespace trial {

/// The number of the operation that the tests run.
constexpr uint32_t kOperation = 6;

/// One exchange: the bytes that every rank sends to every other.
struct ExchangeCase {
  uint32_t algorithm;
  bool told;  ///< ranks send each other their counts first
  uint32_t blocks, threads, lanes_log2;
  uint32_t rows;  ///< of every chunk; chunks of several rows are of equal size
  uint32_t root, dtype, reduction;
  uint32_t from_shift, into_shift;       ///< bytes off a 64-byte boundary
  uint32_t shift_step;                   ///< additional shift of each rank over the previous rank
  uint64_t bytes[kMaxWorld][kMaxWorld];  ///< [from][to]
  uint32_t sources;                      ///< ranks of each result of a reduction, whose chunks are all one; 0: all ranks

  bool relays() const { return algorithm == kExchangeRelay || algorithm == kRelayPackets; }
  bool escaped() const { return algorithm == kExchangeEscaped; }
  bool by_sentinels() const { return algorithm == kReduceSentinels || escaped(); }
  bool reduces() const {
    return algorithm == kReducePackets || algorithm == kReducePull || algorithm == kReduceLocal || algorithm == kReduceSentinels;
  }
  uint64_t largest(uint32_t world) const {
    uint64_t most = 0;
    for (uint32_t from = 0; from < world; ++from) {
      for (uint32_t to = 0; to < world; ++to) most = std::max(most, bytes[from][to]);
    }
    return most;
  }
};

/// Operands of one exchange on every rank. As Operands does, every rank makes its input before the call and
/// spoils all after it, so that a kernel that reads or writes at the wrong time is found out.
class ExchangeOperands {
 public:
  ExchangeOperands(const ExchangeCase& c, uint32_t world, std::mt19937_64& random) : case_(c), world_(world), wrong_(world) {
    const uint64_t room = world * c.largest(world) + 64;
    for (uint32_t rank = 0; rank < world; ++rank) {
      from_.emplace_back(room);
      into_.emplace_back(room);
      data_.emplace_back(room);
      // Bits of sentinels among the values, where there are sentinels.
      for (uint8_t& byte : data_.back()) byte = c.by_sentinels() && random() % 4 == 0 ? 0xFF : static_cast<uint8_t>(random());
      // Units full of sentinels and of the words that replace sentinels, and units without.
      for (size_t unit = 0; c.escaped() && unit + 64 <= room; unit += 64) {
        for (size_t at = unit; unit % 256 != 0 && at < unit + 64; at += 4) {
          const uint32_t word = random() % 3 == 0 ? 0xFFFFFFFE + static_cast<uint32_t>(random() % 2) : static_cast<uint32_t>(random() % 17);
          std::memcpy(&data_.back()[at], &word, 4);
        }
      }
      brought_.emplace_back(c.algorithm == kReduceLocal ? world * room : 1);
      const bool reads = c.algorithm == kReducePull;
      table_.address[rank] = reads ? from(rank) : into(rank);
    }
    for (uint32_t rank = 0; rank < world; ++rank) expected_.push_back(expect(rank));
  }
  ExchangeOperands(const ExchangeOperands&) = delete;

  uint8_t* from(uint32_t rank) const { return from_[rank].as() + case_.from_shift + rank * case_.shift_step; }
  uint8_t* into(uint32_t rank) const { return into_[rank].as() + case_.into_shift + rank * case_.shift_step; }
  /// The part of a source's input that copy engines would have brought to a rank.
  uint8_t* brought(uint32_t rank, uint32_t source) const {
    return brought_[rank].as() + source * case_.bytes[source][rank] + case_.from_shift;
  }
  const PeerTable* table() const { return &table_; }
  uint64_t row_bytes() const { return case_.rows == 1 ? 0 : case_.bytes[0][0] / case_.rows; }
  /// Results of a reduction, side by side in each row of the output.
  uint32_t results() const { return case_.sources == 0 ? 1 : world_ / case_.sources; }
  /// Where the strip for a rank starts in an input, and that of a rank in an output.
  uint64_t sent_at(uint32_t rank, uint32_t to) const {
    if (case_.sources != 0) return 0;
    if (case_.rows > 1) return to * row_bytes();
    uint64_t at = 0;
    for (uint32_t before = 0; before < to; ++before) at += case_.bytes[rank][before];
    return at;
  }
  uint64_t got_at(uint32_t rank, uint32_t source) const {
    if (case_.sources != 0) return source / case_.sources * (case_.bytes[source][rank] / case_.rows);
    if (case_.reduces() || case_.relays()) return 0;
    uint64_t at = 0;
    for (uint32_t before = 0; before < source; ++before) at += case_.bytes[before][rank];
    return at;
  }

  Launch produce(uint32_t rank) {
    return {[this, rank] {
              if (!case_.relays()) std::memcpy(from(rank), data_[rank].data(), data_[rank].size() - 64);
              if (case_.relays() && rank == case_.root) std::memcpy(into(rank), data_[rank].data(), case_.bytes[rank][rank]);
              for (uint32_t source = 0; case_.algorithm == kReduceLocal && source < world_; ++source) {
                std::memcpy(brought(rank, source), &data_[source][sent_at(source, rank)], case_.bytes[source][rank]);
              }
            },
            {1, 1, kSharedBytes, 0}};
  }
  Launch consume(uint32_t rank) {
    return {[this, rank] {
              for (size_t i = 0; i < expected_[rank].size(); ++i) wrong_[rank] += into(rank)[i] != expected_[rank][i];
              wrong_[rank] += into(rank)[expected_[rank].size()] != 0;
              std::memset(from_[rank].as(), kSpoiled, from_[rank].bytes());
              std::memset(into_[rank].as(), kSpoiled, into_[rank].bytes());
            },
            {1, 1, kSharedBytes, 0}};
  }
  uint64_t wrong() const {
    uint64_t wrong = 0;
    for (uint32_t rank = 0; rank < world_; ++rank) {
      wrong += wrong_[rank];
      for (size_t i = 0; i < into_[rank].bytes(); ++i) wrong += into_[rank].as()[i] != kSpoiled;
    }
    return wrong;
  }

 private:
  static constexpr uint8_t kSpoiled = 0xC3;

  /// Byte i of the strip from one rank to another.
  uint8_t sent(uint32_t source, uint32_t to, uint64_t i) const {
    const uint64_t row = row_bytes();
    const bool strided = row != 0 && case_.sources == 0;
    return data_[source][sent_at(source, to) + (strided ? i / row * row * world_ + i % row : i)];
  }

  std::vector<uint8_t> expect(uint32_t rank) const {
    std::vector<uint8_t> all;
    if (case_.relays()) return {data_[case_.root].begin(), data_[case_.root].begin() + case_.bytes[0][0]};
    if (!case_.reduces()) {
      for (uint32_t source = 0; source < world_; ++source) {
        for (uint64_t i = 0; i < case_.bytes[source][rank]; ++i) all.push_back(sent(source, rank, i));
      }
      return all;
    }
    const uint64_t row = case_.bytes[0][rank] / case_.rows;
    for (uint64_t start = 0; start < case_.bytes[0][rank]; start += row) {
      for (uint32_t result = 0; result < results(); ++result) reduce(rank, start, row, result, all);
    }
    return all;
  }

  /// Appends a row of a result.
  void reduce(uint32_t rank, uint64_t start, uint64_t row, uint32_t number, std::vector<uint8_t>& all) const {
    const uint32_t element = element_bytes(case_.dtype), sources = world_ / results();
    for (uint64_t i = start; i < start + row; i += element) {
      std::vector<Bits> terms;
      for (uint32_t source = number * sources; source < (number + 1) * sources; ++source) {
        Bits bits = 0;
        for (uint32_t b = 0; b < element; ++b) bits |= Bits{sent(source, rank, i + b)} << (8 * b);
        terms.push_back(bits);
      }
      const Bits result = reference::reduce(case_.dtype, case_.reduction, element, terms);
      for (uint32_t b = 0; b < element; ++b) all.push_back(static_cast<uint8_t>(result >> (8 * b)));
    }
  }

  ExchangeCase case_;
  uint32_t world_;
  std::deque<Memory> from_, into_, brought_;
  std::vector<std::vector<uint8_t>> data_, expected_;
  std::vector<uint64_t> wrong_;
  PeerTable table_{};
};

/// Ranks that exchange by packets, between operands, and after an exchange of counts.
class ExchangeGroup {
 public:
  ExchangeGroup(uint32_t world, uint64_t slot, uint32_t epoch, uint64_t timeout_ns = 60'000'000'000)
      : world_(world), slot_(slot), timeout_ns_(timeout_ns) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      packets_.emplace_back(2 * world * slot * 16);
      sentinels_.emplace_back(region_bytes(kOneShotSentinel, sentinel_slot(), world));
      flags_.emplace_back(kMaxBlocks * kMaxWorld * 4);
      counts_.emplace_back(2 * world * 4 * 16);
      learned_.emplace_back(sizeof(Learned));
      for (const RankMemory* memory : {&packets_[rank], &sentinels_[rank], &flags_[rank], &counts_[rank]}) {
        for (uint32_t block = 0; block < kMaxBlocks; ++block) memory->state.as<BlockState>()[block].epoch = epoch;
      }
      for (uint32_t flag = 0; flag < kMaxBlocks * kMaxWorld; ++flag) flags_[rank].region.as<uint32_t>()[flag] = 2 * epoch;
    }
  }

  const RankMemory& rank(uint32_t rank) const { return packets_[rank]; }
  const RankMemory& sentinels(uint32_t rank) const { return sentinels_[rank]; }
  uint64_t slot() const { return slot_; }
  /// Packets of a slot of sentinel packets.
  uint64_t sentinel_slot() const { return slot_ + 3 * kEscapedGroupPackets; }

  /// The kernels of one exchange.
  std::vector<Launch> launch(const ExchangeCase& c, const ExchangeOperands& operands, uint32_t rank) const {
    ExchangeArgs args = common(c, rank);
    for (uint32_t peer = 0; peer < world_; ++peer) {
      const bool local = c.algorithm == kReduceLocal;
      args.from[peer] = local ? operands.brought(rank, peer) : operands.from(rank) + operands.sent_at(rank, peer);
      if (c.relays()) args.from[peer] = operands.into(rank);
      args.into[peer] = operands.into(rank) + operands.got_at(rank, peer);
      // Nothing may be read or written where a strip is empty.
      if (c.bytes[rank][peer] == 0 && !c.relays()) args.from[peer] = nullptr;
      if (c.bytes[peer][rank] == 0 && !c.relays()) args.into[peer] = nullptr;
      args.send_bytes[peer] = c.bytes[rank][peer];
      args.receive_bytes[peer] = c.bytes[peer][rank];
      args.theirs_bytes[peer] = c.algorithm == kReducePull ? operands.sent_at(peer, rank) : operands.got_at(peer, rank);
    }
    args.row_bytes = operands.row_bytes();
    args.from_pitch_bytes = c.sources == 0 ? args.row_bytes * world_ : args.row_bytes;
    args.into_pitch_bytes = args.row_bytes * operands.results();
    args.sources = c.sources;
    args.table = operands.table();
    if (!c.told) return {run(args, c)};
    args.learned = learned_[rank].as<Learned>();
    ExchangeArgs packets = args;
    packets.algorithm = kExchangePackets;
    use(packets, packets_, rank);
    return {tell(c, args, operands), run(packets, c), run(args, c)};
  }

 private:
  void use(ExchangeArgs& args, const std::deque<RankMemory>& regions, uint32_t rank) const {
    for (uint32_t peer = 0; peer < world_; ++peer) args.peers[peer] = regions[peer].region.as();
    args.state = regions[rank].state.as<BlockState>();
  }

  Wait wait(uint32_t rank) const { return {packets_[rank].progress.as<Progress>(), packets_[rank].status.as<Status>(), timeout_ns_}; }

  ExchangeArgs common(const ExchangeCase& c, uint32_t rank) const {
    ExchangeArgs args{};
    args.algorithm = c.algorithm;
    use(args, by_ll(args) ? packets_ : c.by_sentinels() ? sentinels_ : flags_, rank);
    args.wait = wait(rank);
    args.rank = rank;
    args.world = world_;
    args.lanes_log2 = c.lanes_log2;
    args.op = kOperation;
    args.root = c.root;
    args.dtype = c.dtype;
    args.reduction = c.reduction;
    args.slot_packets = c.by_sentinels() ? sentinel_slot() : slot_;
    args.largest_bytes = c.largest(world_);
    return args;
  }

  static Launch run(const ExchangeArgs& args, const ExchangeCase& c) {
    const Geometry geometry{c.blocks, c.threads, shared_bytes(args), 0};
    const host::Entry entry = entry_of(args, geometry);
    if (entry == nullptr) return {nullptr, geometry};
    return {[args, entry] { entry(&args); }, geometry};
  }

  /// Directly, with the exchanged counts, where the chunks are large; else by packets.
  Launch tell(const ExchangeCase& c, const ExchangeArgs& args, const ExchangeOperands& operands) const {
    CountsArgs counts{};
    for (uint32_t peer = 0; peer < world_; ++peer) {
      counts.peers[peer] = counts_[peer].region.as();
      counts.send_bytes[peer] = args.send_bytes[peer];
      counts.receive_bytes[peer] = args.receive_bytes[peer];
      counts.offset_bytes[peer] = operands.got_at(args.rank, peer);
      counts.largest_bytes = std::max({counts.largest_bytes, args.send_bytes[peer], args.receive_bytes[peer]});
    }
    counts.state = counts_[args.rank].state.as<BlockState>();
    counts.learned = learned_[args.rank].as<Learned>();
    counts.wait = args.wait;
    counts.rank = args.rank;
    counts.world = world_;
    counts.direct = 1;
    counts.direct_from_bytes = 100;
    const Geometry geometry{1, c.threads, kCountsSharedBytes, 0};
    return {[counts, entry = entry_of(counts, geometry)] { entry(&counts); }, geometry};
  }

  uint32_t world_;
  uint64_t slot_;
  uint64_t timeout_ns_;
  std::deque<RankMemory> packets_, sentinels_, flags_, counts_;
  std::deque<Memory> learned_;
};

}  // namespace trial
