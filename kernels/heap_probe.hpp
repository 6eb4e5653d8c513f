// The argument block of measurements of a peer's memory, a part of kernels/args.hpp.
#pragma once
#include <cstdint>

#include "symmetra/device/abi.hpp"

namespace symmetra::kernels {

/// What a kernel does with a peer's memory, to measure it.
constexpr uint32_t kHeapProbeLoad = 0;     ///< loads, each of which says where the next is
constexpr uint32_t kHeapProbeAdd = 1;      ///< additions, each of what the last one returned
constexpr uint32_t kHeapProbeMessage = 2;  ///< messages of 16 bytes there and back; the peer does the same
constexpr uint32_t kHeapProbePut = 3;      ///< a copy by all blocks
constexpr uint32_t kHeapProbes = 4;        ///< how many there are

/// Words from one load of kHeapProbeLoad to what another loads: 256 bytes, more than any device fetches at once.
constexpr uint32_t kHeapProbeLineWords = 32;
constexpr uint32_t kHeapProbeMessageBytes = 16;
/// Two messages, which take turns.
constexpr uint32_t kHeapProbeSlotWords = 4;
/// What folded words are multiplied by: odd, so no word is lost.
constexpr uint64_t kHeapProbeFold = 6364136223846793005;

/// One of kHeapProbe*, by the functions that kernels of users have.
struct HeapProbeArgs {
  device::Heap heap;
  void* from;       ///< own: what is sent; 16-byte aligned
  void* at;         ///< own address, whose place at the peer is loaded, added to or written; 16-byte aligned
  uint64_t* found;  ///< own: the last word, and the fold of all words; later launches go on from there
  uint64_t bytes;   ///< kHeapProbePut
  uint32_t task;    ///< kHeapProbe*
  uint32_t peer;
  uint32_t rounds;     ///< loads, additions, or messages each way
  uint32_t line_mask;  ///< kHeapProbeLoad: lines of kHeapProbeLineWords at `at`, a power of two, less one
};

}  // namespace symmetra::kernels
