// Converts own rows to their wire format: unchanged, or quantised with scales.
#pragma once
#include "kernels/experts/rows.cuh"
#include "kernels/numeric/narrow.cuh"

namespace symmetra::kernels {

/// The scale of a group of a row that is quantised to e4m3. Each element is multiplied by 448 / max(largest absolute
/// value of the group, 1e-4), rounded to nearest even, and saturated. Scales in powers of two are rounded so that they
/// cover the largest value.
struct CodeScale {
  float scale;
  float inverse;
  uint32_t byte;

  SYMMETRA_DEVICE CodeScale(uint32_t scales, float largest) {
    constexpr float kLeast = 1e-4f;
    const float most = larger(largest, kLeast);
    byte = scales == kCodeScalesF32 ? 0 : narrow::E8M0::covering<narrow::E4M3>(most);
    scale = scales == kCodeScalesF32 ? platform::divide(most, narrow::E4M3::kMost) : narrow::E8M0::decode(byte);
    inverse = scales == kCodeScalesF32 ? platform::divide(narrow::E4M3::kMost, most) : narrow::E8M0::inverse(byte);
  }

  SYMMETRA_DEVICE void store(uint32_t scales, uint8_t* into, uint32_t group) const {
    if (scales == kCodeScalesE8M0) {
      into[group] = static_cast<uint8_t>(byte);
    } else {
      platform::store(into + uint64_t{group} * 4, scale);
    }
  }
};

/// The partition of a row among the threads of a block: eight neighbouring threads take a group if threads run in
/// lockstep, otherwise one thread. All threads of the block execute all rounds.
template <class Element>
class RowCodes {
 public:
  static constexpr uint32_t kSharers = platform::kTeam == 1 ? 1 : 8, kMine = kCodeGroup / kSharers, kPackets = kMine / 16;
  static constexpr uint32_t kEach = kValues<Element, 4>, kLoads = kMine / kEach;
  struct Loaded {
    Words<4> packet[kLoads];
  };

  SYMMETRA_DEVICE RowCodes(const RowArgs& args, const ExpertRows& rows, uint32_t token)
      : args_(args), row_(rows.values, uint64_t{token} * args.hidden, args.hidden), groups_(code_groups(args)) {}

  SYMMETRA_DEVICE uint32_t rounds() const { return (groups_ * kSharers + platform::threads() - 1) / platform::threads(); }

  /// Loads this thread's part of a round.
  SYMMETRA_DEVICE Loaded load(uint32_t round) const {
    Loaded loaded;
    SYMMETRA_UNROLL
    for (uint32_t packet = 0; packet < kLoads; ++packet) loaded.packet[packet] = row_.load(part_of(round) * kLoads + packet);
    return loaded;
  }

  /// Quantises what this thread has loaded for a round: writes packets of quantised values to `codes`, and calls
  /// `put(group, scale)` if this thread is the first of a group.
  template <class Scale>
  SYMMETRA_DEVICE void encode(uint32_t round, const Loaded& loaded, Words<4> (&codes)[kPackets], Scale put) const {
    const uint32_t part = part_of(round), group = part / kSharers;
    float values[kMine];
    float largest = 0.0f;
    SYMMETRA_UNROLL
    for (uint32_t packet = 0; packet < kLoads; ++packet) {
      float some[kEach];
      Element::unpack(loaded.packet[packet], some);
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) {
        values[packet * kEach + i] = some[i];
        largest = larger(largest, platform::f32_of(platform::bits_of(some[i]) & 0x7FFFFFFF));
      }
    }
    largest = platform::f32_of(platform::team_max(kSharers, platform::bits_of(largest)));
    const CodeScale scale(args_.scales, largest);
    SYMMETRA_UNROLL
    for (uint32_t packet = 0; packet < kPackets; ++packet) {
      SYMMETRA_UNROLL
      for (uint32_t word = 0; word < 4; ++word) {
        float four[4];
        SYMMETRA_UNROLL
        for (uint32_t i = 0; i < 4; ++i) four[i] = platform::multiply(values[packet * 16 + word * 4 + i], scale.inverse);
        codes[packet].word[word] = narrow::pack_word<narrow::E4M3>(four);
      }
    }
    if (group < groups_ && part % kSharers == 0) put(group, scale);
  }

  /// Calls `put(packet, codes)` for each packet of a round that lies within the row.
  template <class Put>
  SYMMETRA_DEVICE void each(uint32_t round, const Words<4> (&codes)[kPackets], Put put) const {
    SYMMETRA_UNROLL
    for (uint32_t packet = 0; packet < kPackets; ++packet) {
      const uint32_t at = part_of(round) * kPackets + packet;
      if (at * 16 < args_.hidden) put(at, codes[packet]);
    }
  }

 private:
  SYMMETRA_DEVICE uint32_t part_of(uint32_t round) const { return round * platform::threads() + platform::thread(); }

  const RowArgs& args_;
  Row<Element> row_;
  uint32_t groups_;
};

/// Sends rows one after the other, by all threads of a block. The first part of the next row is loaded before the
/// current row is sent. `Element`: the type of the rows if they are quantised here.
template <class Element>
class RowStream {
 public:
  SYMMETRA_DEVICE RowStream(const RowArgs& args, const ExpertRows& rows)
      : args_(args),
        rows_(rows),
        packets_(byte_packets(args.payload_bytes)),
        scale_bytes_(args.wire == kWireGivenF8 ? code_groups(args) * 4 : 0) {}

  /// Loads the first part of a row for this thread.
  SYMMETRA_DEVICE void begin(uint32_t token) {
    if constexpr (Element::kFloating) {
      ahead_ = RowCodes<Element>(args_, rows_, token).load(0);
    } else if (platform::thread() < packets_ + byte_packets(scale_bytes_)) {
      ahead_ = load(token, platform::thread());
    }
  }

  /// Writes the row that was begun to each target, and begins the row of token `next`, unless that is kNone. Targets
  /// have capacity for whole packets.
  template <class Targets>
  SYMMETRA_DEVICE void send(uint32_t token, uint32_t next, const Targets& targets) {
    const Loaded first = ahead_;
    if (next != kNone) begin(next);
    if constexpr (Element::kFloating) {
      const RowCodes<Element> row(args_, rows_, token);
      for (uint32_t round = 0; round < row.rounds(); ++round) {
        Words<4> codes[RowCodes<Element>::kPackets];
        row.encode(round, round == 0 ? first : row.load(round), codes, [&](uint32_t group, const CodeScale& scale) {
          targets.scales([&](uint8_t* into) { scale.store(args_.scales, into, group); });
        });
        row.each(round, codes, [&](uint32_t packet, const Words<4>& data) {
          targets.rows([&](uint8_t* into) { platform::store(into + uint64_t{packet} * 16, data); });
        });
      }
    } else {
      for (uint32_t i = platform::thread(); i < packets_ + byte_packets(scale_bytes_); i += platform::threads()) {
        const Words<4> data = i == platform::thread() ? first : load(token, i);
        if (i < packets_) {
          targets.rows([&](uint8_t* into) { platform::store(into + uint64_t{i} * 16, data); });
        } else {
          targets.scales([&](uint8_t* into) { Bytes(into, 0, scale_bytes_).store(i - packets_, data); });
        }
      }
    }
  }

 private:
  template <class E, bool kCodes>
  struct Ahead {
    using Type = Words<4>;
  };
  template <class E>
  struct Ahead<E, true> {
    using Type = typename RowCodes<E>::Loaded;
  };
  using Loaded = typename Ahead<Element, Element::kFloating>::Type;

  /// A packet of a row that is sent unchanged: first the packets of the row, then those of its scales.
  SYMMETRA_DEVICE Words<4> load(uint32_t token, uint32_t i) const {
    if (i < packets_) return Bytes(rows_.values, uint64_t{token} * args_.payload_bytes, args_.payload_bytes).load(i);
    return Bytes(rows_.scales, uint64_t{token} * scale_bytes_, scale_bytes_).load(i - packets_);
  }

  const RowArgs& args_;
  const ExpertRows& rows_;
  uint32_t packets_;      ///< of a row
  uint32_t scale_bytes_;  ///< of a row's scales from the caller
  Loaded ahead_{};
};

/// The target of an own row in the own region, from which collectives send it.
class OwnRegion {
 public:
  SYMMETRA_DEVICE OwnRegion(const MoveArgs& args, uint32_t token)
      : row_(of_token(args, args.staged, args.row_bytes, args.rank, token)), scales_(row_ + args.scales_offset) {}

  /// Calls `store` with the place of the row (`rows`) or of its scales (`scales`).
  template <class Store>
  SYMMETRA_DEVICE void rows(Store store) const {
    store(row_);
  }
  template <class Store>
  SYMMETRA_DEVICE void scales(Store store) const {
    store(scales_);
  }

 private:
  uint8_t* row_;
  uint8_t* scales_;
};

/// Stages the own rows in their wire format. A block takes a token.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_rows(SYMMETRA_ARGS(MoveArgs) args) {
  platform::wait_prior();
  const uint32_t tokens = Headers(args).tokens(args.rank), step = platform::blocks();
  RowStream<Element> stream(args, args.rows);
  if (platform::block() < tokens) stream.begin(platform::block());
  for (uint32_t token = platform::block(); token < tokens; token += step) {
    stream.send(token, token + step < tokens ? token + step : kNone, OwnRegion(args, token));
  }
  platform::release_next();
}

}  // namespace symmetra::kernels
