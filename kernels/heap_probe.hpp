// The argument block of measurements of a peer's memory, a part of kernels/args.hpp.
#pragma once
#include <cstdint>

#include "symmetra/device/abi.hpp"

namespace symmetra::kernels {

/// Tasks of a kernel that measures a peer's memory.
constexpr uint32_t kHeapProbeLoad = 0;     ///< dependent loads: each contains the index of the next
constexpr uint32_t kHeapProbeAdd = 1;      ///< dependent additions: each adds a function of the last result
constexpr uint32_t kHeapProbeMessage = 2;  ///< messages of 16 bytes in both directions; the peer runs the same task
constexpr uint32_t kHeapProbePut = 3;      ///< a copy by all blocks
constexpr uint32_t kHeapProbes = 4;        ///< the number of tasks

/// Words between the loads of kHeapProbeLoad: 256 bytes, more than any device fetches at once.
constexpr uint32_t kHeapProbeLineWords = 32;
constexpr uint32_t kHeapProbeMessageBytes = 16;
/// Two messages, which alternate.
constexpr uint32_t kHeapProbeSlotWords = 4;
/// The multiplier of folded words: odd, so that no word is lost.
constexpr uint64_t kHeapProbeFold = 6364136223846793005;

/// One of kHeapProbe*, with the functions that user kernels have.
struct HeapProbeArgs {
  device::Heap heap;
  void* from;       ///< own: the data to send; 16-byte aligned
  void* at;         ///< own address; its counterpart at the peer is loaded, added to or written; 16-byte aligned
  uint64_t* found;  ///< own: the last word, and the fold of all words; later launches continue from there
  uint64_t bytes;   ///< kHeapProbePut
  uint32_t task;    ///< kHeapProbe*
  uint32_t peer;
  uint32_t rounds;     ///< loads, additions, or messages each way
  uint32_t line_mask;  ///< kHeapProbeLoad: lines of kHeapProbeLineWords at `at`, a power of two, less one
};

}  // namespace symmetra::kernels
