// Measures the access of a kernel to a peer's memory: loads, atomics, messages and copies with the functions of user
// kernels.
#pragma once
#include "kernels/args.hpp"
#include "symmetra/device/heap.cuh"

namespace symmetra::kernels {

/// The fold of all received words, in order: one wrong word changes the result.
SYMMETRA_DEVICE uint64_t fold(uint64_t folded, uint64_t word) { return folded * kHeapProbeFold + word; }

/// Dependent loads: every word contains the index of the next. Each word is in a line of its own, so a load never hits
/// a fetched line.
SYMMETRA_DEVICE void load_chain(const HeapProbeArgs& args) {
  const auto* const words = static_cast<const uint64_t*>(args.at);
  uint64_t last = args.found[0], folded = args.found[1];
  SYMMETRA_ROLLED
  for (uint32_t round = 0; round < args.rounds; ++round) {
    last = device::load(args.heap, words + (last & args.line_mask) * kHeapProbeLineWords, device::Rank{args.peer});
    folded = fold(folded, last);
  }
  args.found[0] = last;
  args.found[1] = folded;
}

/// Dependent additions: each adds a function of the value that the last one returned.
SYMMETRA_DEVICE void add_chain(const HeapProbeArgs& args) {
  auto* const word = static_cast<uint64_t*>(args.at);
  uint64_t last = args.found[0], folded = args.found[1];
  SYMMETRA_ROLLED
  for (uint32_t round = 0; round < args.rounds; ++round) {
    last = device::fetch_add<device::Order::kRelaxed>(args.heap, word, device::Rank{args.peer}, 2 * last + 1);
    folded = fold(folded, last);
  }
  args.found[0] = last;
  args.found[1] = folded;
}

/// Messages of 16 bytes in both directions. Two slots alternate, so a message is read while the next is in transit.
/// Each message differs from all earlier ones, so that a premature read is detected.
SYMMETRA_DEVICE void pass_messages(const HeapProbeArgs& args) {
  auto* const sent = static_cast<uint64_t*>(args.from);
  auto* const came = static_cast<uint64_t*>(args.at);
  const bool first = args.heap.signals.rank <= args.peer;
  uint64_t folded = args.found[1];
  const auto send = [&](uint32_t round) {
    const uint32_t slot = round % 2 * 2;
    device::put_signal<device::Thread>(args.heap, came + slot, sent + slot, device::Rank{args.peer}, kHeapProbeMessageBytes,
                                       device::Channel{0});
    for (uint32_t word = slot; word < slot + 2; ++word) sent[word] = fold(sent[word], word + 1);
  };
  const auto read = [&](uint32_t round) {
    const uint32_t slot = round % 2 * 2;
    for (uint32_t word = slot; word < slot + 2; ++word) folded = fold(folded, platform::load<uint64_t>(came + word));
  };
  SYMMETRA_ROLLED
  for (uint32_t round = 0; round < args.rounds; ++round) {
    if (first) send(round);
    // Sent after the message that the peer waits for.
    if (first && round > 0) read(round - 1);
    if (!device::wait_signal<device::Thread>(args.heap, device::Rank{args.peer}, device::Channel{0})) return;
    if (!first) {
      send(round);
      read(round);
    }
  }
  if (first) read(args.rounds - 1);
  args.found[1] = folded;
}

/// Copies to the peer, by all blocks.
SYMMETRA_DEVICE void put_all(const HeapProbeArgs& args) {
  const uint64_t packets = args.bytes / sizeof(platform::Packet), blocks = platform::blocks();
  const uint64_t first = packets * platform::block() / blocks, end = packets * (platform::block() + 1) / blocks;
  auto* const to = static_cast<platform::Packet*>(args.at);
  const auto* const from = static_cast<const platform::Packet*>(args.from);
  device::put(args.heap, to + first, from + first, device::Rank{args.peer}, (end - first) * sizeof(platform::Packet));
}

SYMMETRA_KERNEL void heap_probe(SYMMETRA_ARGS(HeapProbeArgs) args) {
  platform::wait_prior();
  if (args.task == kHeapProbePut) {
    put_all(args);
  } else if (platform::block() == 0 && platform::thread() == 0) {
    if (args.task == kHeapProbeLoad) load_chain(args);
    if (args.task == kHeapProbeAdd) add_chain(args);
    if (args.task == kHeapProbeMessage) pass_messages(args);
  }
}

}  // namespace symmetra::kernels
