// The sending half of a dispatch in packets.
#pragma once
#include "kernels/experts/packets.cuh"

namespace symmetra::kernels {

/// Writes the head to every rank, and keeps what combines need of it. One block.
SYMMETRA_DEVICE void send_head(const ExpertArgs& args, const Asked& asked, const ExpertPackets& packets, uint32_t* words) {
  const Heads heads(args);
  const ExpertHead head = asked.head(words);
  if (platform::thread() == 0) {
    const auto expert = static_cast<uint64_t>(head.bad_expert);
    platform::store_shared(words, Words<4>{{head.tokens, head.claimed, head.room, head.bad_token}});
    platform::store_shared(words + 4, Words<4>{{static_cast<uint32_t>(expert), static_cast<uint32_t>(expert >> 32), 0, 0}});
  }
  platform::sync_block();
  const uint32_t pairs = head.tokens * args.top_k, copy_words = (pairs + 1) / 2;
  const auto word = [&](uint32_t i) -> uint32_t {
    if (i < kHeadWords) return words[i];
    if (i - kHeadWords < copy_words) {
      const uint32_t two = (i - kHeadWords) * 2;
      const uint32_t copies = asked.copy(two) | uint32_t{two + 1 < pairs ? asked.copy(two + 1) : kNoCopy} << 16;
      platform::store(heads.copies(args.rank) + two, copies);
      return copies;
    }
    const uint32_t pair = i - kHeadWords - copy_words;
    if (pair >= pairs) return 0;
    const float weight = args.weights != nullptr ? args.weights[pair] : 1.0f;
    heads.weights(args.rank)[pair] = weight;
    return platform::bits_of(weight);
  };
  for (uint32_t i = platform::thread(); i < packets.head_packets(head.tokens); i += platform::threads()) {
    Words<2> data{};
    SYMMETRA_ROLLED
    for (uint32_t half = 0; half < 2; ++half) {
      data.word[0] = data.word[1];
      data.word[1] = word(2 * i + half);
    }
    const Packet packet = ByteProtocol::encode(data, packets.epoch());
    SYMMETRA_ROLLED
    for (uint32_t k = 1; k <= args.world; ++k) {
      const uint32_t rank = args.rank + k < args.world ? args.rank + k : args.rank + k - args.world;
      platform::store_packet(packets.telling(rank, args.rank, i), packet);
    }
  }
}

/// Sends the row of a token to the ranks of its experts, by all threads of the block.
template <class Protocol>
class RowSender {
 public:
  /// `words`: of block-shared memory, one for each of the token's experts.
  SYMMETRA_DEVICE RowSender(const ExpertArgs& args, const Asked& asked, const ExpertPackets& packets, uint32_t token, uint32_t* words)
      : args_(args), packets_(packets), number_(uint64_t{args.rank} * args.max_tokens + token), targets_(args, words) {
    targets_.begin([&](uint32_t k) { return uint32_t{asked.target(token * args.top_k + k).rank}; });
  }
  /// Learns the targets. All threads call it.
  SYMMETRA_DEVICE void meet() { targets_.meet(); }
  /// Sends sixteen bytes, behind `meet`.
  SYMMETRA_DEVICE void send(uint32_t i, const Words<4>& data, uint32_t quiet) const {
    targets_.each([&](uint32_t rank) {
      send_bytes<Protocol>(packets_.row(rank, number_, row_packets<Protocol>(args_.row_bytes)), i, data, quiet, packets_.epoch());
    });
  }

 private:
  const ExpertArgs& args_;
  const ExpertPackets& packets_;
  uint64_t number_;
  TokenRanks targets_;
};

/// Sends a row in the form in which rows travel. Loads precede the sync in which the block learns the targets. `words`: of
/// block-shared memory, one for each of the token's experts; behind them room for the scales of a row.
template <class Element, class Protocol>
SYMMETRA_DEVICE void send_packets(const ExpertArgs& args, const Asked& asked, const ExpertPackets& packets, uint32_t token,
                                  uint32_t* words) {
  RowSender<Protocol> sender(args, asked, packets, token, words);
  const uint32_t codes_quiet = F8E4M3::kQuietNan, scales_at = static_cast<uint32_t>(args.scales_offset / 16);
  if constexpr (Element::kFloating) {
    using Codes = RowCodes<Element>;
    const Codes row(args, token);
    uint32_t* const scales = words + kMostTopK;
    const bool bytes = args.scales == kCodeScalesE8M0;
    for (uint32_t round = 0; round < row.rounds(); ++round) {
      Words<4> codes[Codes::kPackets];
      row.encode(round, codes, [&](uint32_t group, const CodeScale& scale) {
        if (bytes) {
          reinterpret_cast<uint8_t*>(scales)[group] = static_cast<uint8_t>(scale.byte);
        } else {
          scales[group] = platform::bits_of(scale.scale);
        }
      });
      if (round == 0) sender.meet();
      row.each(round, codes, [&](uint32_t packet, const Words<4>& data) { sender.send(packet, data, codes_quiet); });
    }
    platform::sync_block();  // all scales are there
    // Bytes behind the last scale may be anything: nobody reads them.
    const uint32_t count = bytes ? (code_groups(args) + 3) / 4 : code_groups(args);
    for (uint32_t i = platform::thread(); i * 4 < count; i += platform::threads()) {
      Words<4> data{};
      SYMMETRA_UNROLL
      for (uint32_t word = 0; word < 4; ++word) {
        if (i * 4 + word < count) data.word[word] = scales[i * 4 + word];
      }
      sender.send(scales_at + i, data, bytes ? codes_quiet : F32::kQuietNan);
    }
  } else {
    const bool codes = args.wire == kWireGivenF8;
    const Bytes row(args.rows, uint64_t{token} * args.payload_bytes, args.payload_bytes);
    const uint32_t quiet = codes ? codes_quiet : args.dtype == kF32 ? F32::kQuietNan : BF16::kQuietNan, threads = platform::threads();
    for (uint32_t first = 0; first == 0 || first < row.packets(); first += threads) {
      const uint32_t i = first + platform::thread();
      const Words<4> data = i < row.packets() ? row.load(i) : Words<4>{};
      if (first == 0) sender.meet();
      if (i < row.packets()) sender.send(i, data, quiet);
    }
    if (codes) {
      const uint32_t bytes = code_groups(args) * 4;
      const Bytes scales(args.row_scales, uint64_t{token} * bytes, bytes);
      for (uint32_t i = platform::thread(); i < scales.packets(); i += threads) sender.send(scales_at + i, scales.load(i), F32::kQuietNan);
    }
  }
}

/// Sends the head to all ranks, and each row to the ranks of its token's experts. A block takes the head or a token.
template <class Element, class Protocol>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_send(SYMMETRA_ARGS(ExpertArgs) args) {
  auto* const words = platform::shared<uint32_t>();
  platform::wait_prior();
  platform::release_next();  // the receiving kernel needs nothing of this one but packets
  const Call call = begin_call(args.calls, args.wait);
  const ExpertPackets packets(args, call.epoch);
  const Asked asked(args);
  const uint32_t units = call.poisoned != 0 ? 0 : asked.tokens() + 1;
  for (uint32_t unit = platform::block(); unit < units; unit += platform::blocks()) {
    if (unit == 0) {
      send_head(args, asked, packets, words);
    } else {
      send_packets<Element, Protocol>(args, asked, packets, unit - 1, words);
    }
    platform::sync_block();  // the words are free again
  }
  platform::sync_block();  // all have read the state
  end_telling(args.calls, call.epoch, 0);
}

}  // namespace symmetra::kernels
