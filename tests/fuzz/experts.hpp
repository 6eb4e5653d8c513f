// Experts on one rank, and the calls on them: expert_rank.rs in C++.
#pragma once

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "symmetra/symmetra.hpp"
#include "words.hpp"

namespace fuzz {

using Lists = std::vector<std::vector<std::size_t>>;

inline Lists lists_of(Words& words) {
  Lists lists(words.next());
  for (auto& list : lists) list = words.list();
  return lists;
}

/// The settings of experts, with the numbers of the headers.
inline symmetra::ExpertConfig layer_of(Words& words) {
  const std::vector<std::size_t> sizes = words.list(4);
  symmetra::ExpertConfig config(sizes[0], sizes[1], sizes[2], sizes[3]);
  config.dtype = static_cast<symmetra::Dtype>(words.next());
  config.wire = static_cast<symmetra::Wire>(words.next());
  config.scales = static_cast<symmetra::Scales>(words.next());
  config.row_bytes = words.next();
  config.layout = static_cast<symmetra::Layout>(words.next());
  config.align = config.padded_rows = words.next();
  config.method = static_cast<symmetra::Method>(words.next());
  config.in_flight = words.next();
  for (const std::size_t exact : words.list()) {
    config.determinism = exact != 0 ? symmetra::Determinism::kExact : symmetra::Determinism::kPerAlgorithm;
  }
  for (const std::size_t blocks : words.list()) config.blocks = static_cast<std::uint32_t>(blocks);
  for (const std::size_t capacity : words.list()) config.capacity = capacity;
  config.placement = symmetra::Placement::table(lists_of(words));
  return config;
}

/// The options of a rank in a round, and its operands.
struct Asked {
  struct Extent {
    std::size_t dtype, elem_bytes, elems, bytes;
  };
  bool weighted, adds, columns;
  std::vector<Extent> operands;
};

/// Of each rank.
using Round = std::vector<Asked>;

inline Round round_of(Words& words, std::size_t members) {
  Round round;
  for (std::size_t member = 0; member < members; ++member) {
    Asked asked{words.next() != 0, words.next() != 0, words.next() != 0, {}};
    for (std::size_t operand = 0; operand < 20; ++operand)
      asked.operands.push_back({words.next(), words.next(), words.next(), words.next()});
    round.push_back(std::move(asked));
  }
  return round;
}

/// How calls are made.
struct Rounds {
  std::size_t experts = 0, together = 1, replays = 0;
  bool begins_dispatch = false, begins_combine = false, plans = false, again = false, reversed = false, unweighted = false, counts = false;
  std::optional<Lists> place{};
  std::vector<Round> rounds{};
};

inline Rounds rounds_of(Words& words) {
  Rounds rounds;
  rounds.experts = words.next();
  rounds.together = words.next();
  rounds.replays = words.next();
  for (bool* flag : {&rounds.begins_dispatch, &rounds.begins_combine, &rounds.plans, &rounds.again, &rounds.reversed, &rounds.unweighted,
                     &rounds.counts})
    *flag = words.next() != 0;
  if (words.next() != 0) rounds.place = lists_of(words);
  const std::size_t count = words.next(), members = words.next();
  for (std::size_t round = 0; round < count; ++round) rounds.rounds.push_back(round_of(words, members));
  return rounds;
}

/// The operands of a dispatch and its combine.
class Operands {
 public:
  Operands(const symmetra::Device& device, const Asked& asked) : asked_(asked) {
    for (const Asked::Extent& extent : asked.operands)
      buffers_.emplace_back(device, extent.elems + kBehind, static_cast<symmetra::Dtype>(extent.dtype));
  }

  /// Writes all operands, from the rank's file.
  void write(std::ifstream& file, const symmetra::Stream& stream) const {
    for (std::size_t at = 0; at < buffers_.size(); ++at) {
      const Asked::Extent& extent = asked_.operands[at];
      std::vector<char> bytes(extent.bytes + kBehind * extent.elem_bytes, kFill);
      file.read(bytes.data(), static_cast<std::streamsize>(extent.bytes));
      const void* const from = bytes.data();
      buffers_[at].write(from, stream);
    }
  }

  /// All that calls write, one after the other.
  void read(const symmetra::Stream& stream, std::vector<char>& into) const {
    for (std::size_t at = kReceived; at < buffers_.size(); ++at) {
      const Asked::Extent& extent = asked_.operands[at];
      std::vector<char> bytes(extent.bytes + kBehind * extent.elem_bytes);
      void* const to = bytes.data();
      buffers_[at].read(to, stream);
      const auto behind = bytes.begin() + static_cast<std::ptrdiff_t>(extent.bytes);
      if (std::any_of(behind, bytes.end(), [](char byte) { return byte != kFill; }))
        throw symmetra::Error(symmetra::ErrorKind::kInternal, "memory behind an operand was written");
      into.insert(into.end(), bytes.begin(), behind);
    }
  }

  symmetra::Routing routing() const {
    symmetra::Routing routing(part(0));
    if (asked_.weighted) routing.weights = part(1);
    routing.tokens = part(2);
    return routing;
  }

  /// Rows or codes, first or again.
  symmetra::ConstOperand rows(const symmetra::ExpertConfig& config, bool again) const {
    const bool wide = config.wire == symmetra::Wire::kSame || config.wire == symmetra::Wire::kF8;
    return part((again ? 6 : 3) + (wide ? 0 : 1));
  }

  std::optional<symmetra::ConstOperand> scales(const symmetra::ExpertConfig& config) const {
    if (config.wire != symmetra::Wire::kGivenF8) return std::nullopt;
    return part(5);
  }

  symmetra::Received into(const symmetra::ExpertConfig& config) const {
    symmetra::Received into(part(config.wire == symmetra::Wire::kSame ? kReceived : kReceived + 1));
    const bool bytes = config.wire == symmetra::Wire::kF8 && config.scales == symmetra::Scales::kE8M0;
    if (config.wire == symmetra::Wire::kF8 || config.wire == symmetra::Wire::kGivenF8) into.scales = part(bytes ? 12 : 11);
    if (config.layout != symmetra::Layout::kBySource) {
      into.counts = part(13);
      into.offsets = part(14);
    }
    into.sources = part(15);
    if (config.layout == symmetra::Layout::kByRank) into.index = part(16);
    into.ids = part(17);
    into.weights = part(18);
    into.order = asked_.columns ? symmetra::ScaleOrder::kColumns : symmetra::ScaleOrder::kRows;
    return into;
  }

  symmetra::Operand results() const { return part(8); }
  symmetra::Operand sums() const { return part(19); }

  symmetra::CombineOptions options(bool unweighted) const {
    symmetra::CombineOptions options;
    options.weighted = !unweighted;
    if (asked_.adds) options.add = sums();
    return options;
  }

 private:
  /// The elements of an operand that calls access.
  symmetra::Operand part(std::size_t at) const {
    const Asked::Extent& extent = asked_.operands[at];
    return {buffers_[at].data(), extent.elems, static_cast<symmetra::Dtype>(extent.dtype)};
  }

  /// The first operand that calls write.
  static constexpr std::size_t kReceived = 9;
  /// Elements after each operand that no call accesses, and the value of their bytes.
  static constexpr std::size_t kBehind = 256;
  static constexpr char kFill = '\xc3';

  Asked asked_;
  std::vector<symmetra::DeviceBuffer> buffers_{};
};

/// Experts that are open.
class Opened {
 public:
  Opened(const symmetra::Communicator& communicator, const symmetra::ExpertConfig& config, std::size_t group)
      : group_(group),
        member_(communicator.rank()),
        device_(communicator.device()),
        config_(config),
        experts_(communicator.experts(config)) {}

  /// Experts that are open, in a group of their own.
  Opened(const symmetra::Communicator& communicator, const symmetra::ExpertConfig& config, symmetra::Experts experts, std::size_t group)
      : group_(group), member_(communicator.rank()), device_(communicator.device()), config_(config), experts_(std::move(experts)) {}

  std::size_t group() const { return group_; }
  const symmetra::ExpertConfig& config() const { return config_; }
  const symmetra::Experts& experts() const { return experts_; }

  /// Makes the calls, and returns their outputs.
  std::vector<char> run(const Rounds& rounds, const symmetra::Stream& stream, std::ifstream& file) const {
    std::vector<Operands> all;
    for (const Round& round : rounds.rounds) all.emplace_back(device_, round.at(member_));
    std::vector<char> found, heard;
    std::optional<symmetra::Graph> graph;
    if (rounds.replays > 0) {
      graph.emplace(stream.capture([&](symmetra::Capture& capture) { enqueue(rounds, all, capture, heard); }));
      graph->register_pointers();
    }
    const std::size_t first_placed = rounds.replays > 0 ? 1 : 0;
    for (std::size_t run = 0; run < std::max<std::size_t>(rounds.replays, 1); ++run) {
      for (const Operands& own : all) own.write(file, stream);
      if (rounds.place && run == first_placed) experts_.place(symmetra::Placement::table(*rounds.place), stream);
      graph ? graph->launch(stream) : enqueue(rounds, all, stream, heard);
      experts_.synchronize(stream);
      for (const Operands& own : all) own.read(stream, found);
    }
    found.insert(found.end(), heard.begin(), heard.end());
    experts_.communicator().check_guards();
    return found;
  }

  /// Makes a call that the device refuses on some rank.
  void misroute(const Round& round, const symmetra::Stream& stream, std::ifstream& file) const {
    const Operands own(device_, round.at(member_));
    own.write(file, stream);
    const symmetra::Routed routed = dispatch(Rounds(), own, stream);
    experts_.synchronize(stream);
  }

 private:
  symmetra::Routed dispatch(const Rounds& rounds, const Operands& own, symmetra::Queue queue) const {
    if (!rounds.plans) return experts_.dispatch(own.routing(), own.rows(config_, false), own.into(config_), queue, own.scales(config_));
    symmetra::Routed routed = experts_.plan(own.routing(), queue);
    routed.dispatch(own.rows(config_, false), own.into(config_), queue, own.scales(config_));
    return routed;
  }

  /// All rounds, of which `together` are in flight at once. The counts that the host reads are appended to `heard`.
  void enqueue(const Rounds& rounds, const std::vector<Operands>& all, symmetra::Queue queue, std::vector<char>& heard) const {
    for (std::size_t first = 0; first < all.size(); first += rounds.together) {
      const std::size_t count = std::min(rounds.together, all.size() - first);
      std::vector<symmetra::Routed> routed;
      std::vector<symmetra::Arriving> arriving;
      for (std::size_t at = 0; at < count; ++at) {
        const Operands& own = all[first + at];
        if (rounds.begins_dispatch) {
          arriving.push_back(experts_.dispatch_begin(own.routing(), own.rows(config_, false), queue, own.scales(config_)));
        } else {
          routed.push_back(dispatch(rounds, own, queue));
        }
      }
      for (std::size_t at = 0; at < arriving.size(); ++at)
        routed.push_back(std::move(arriving[at]).receive(all[first + at].into(config_), queue));
      for (std::size_t at = 0; rounds.counts && at < count; ++at) {
        for (const std::size_t rows : routed[at].counts()) {
          const auto word = static_cast<std::uint32_t>(rows);
          const auto* const bytes = reinterpret_cast<const char*>(&word);
          heard.insert(heard.end(), bytes, bytes + sizeof word);
        }
      }
      for (std::size_t at = 0; rounds.again && at < count; ++at) {
        const Operands& own = all[first + at];
        routed[at].dispatch(own.rows(config_, true), own.into(config_), queue, own.scales(config_));
      }
      combine(rounds, all.data() + first, routed, queue);
    }
  }

  static void combine(const Rounds& rounds, const Operands* all, const std::vector<symmetra::Routed>& routed, symmetra::Queue queue) {
    const auto number = [&](std::size_t at) { return rounds.reversed ? routed.size() - 1 - at : at; };
    std::vector<symmetra::Returning> returning;
    for (std::size_t at = 0; at < routed.size(); ++at) {
      const Operands& own = all[number(at)];
      if (rounds.begins_combine) {
        returning.push_back(routed[number(at)].combine_begin(own.results(), queue));
      } else {
        routed[number(at)].combine(own.results(), own.sums(), queue, own.options(rounds.unweighted));
      }
    }
    for (std::size_t at = 0; at < returning.size(); ++at) {
      const Operands& own = all[number(at)];
      std::move(returning[at]).receive(own.sums(), queue, own.options(rounds.unweighted));
    }
  }

  std::size_t group_, member_;
  symmetra::Device device_;
  symmetra::ExpertConfig config_;
  symmetra::Experts experts_;
};

}  // namespace fuzz
