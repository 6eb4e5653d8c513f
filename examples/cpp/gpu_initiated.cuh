// Collectives that kernels start themselves, in one source for GPUs and the CPU. Blocks of equal number on all ranks
// work together, on a channel of their own: each block waits for the data that the other blocks of its channel put.
#pragma once
#include "symmetra/device/heap.cuh"

namespace example {

using namespace symmetra;

/// The operands of the kernels. All addresses are in this rank's symmetric buffers.
struct Work {
  device::Heap heap;
  const float* input;   ///< `count` elements for each rank
  float* output;        ///< `count` elements of each rank
  float* slots;         ///< `count` elements of each rank, of each rank's share
  std::uint32_t count;  ///< elements of a share
};

/// A block's part of a share.
struct Part {
  std::uint32_t first;
  std::uint32_t elems;
};

SYMMETRA_DEVICE Part part_of(std::uint32_t count) {
  const std::uint32_t each = (count + platform::blocks() - 1) / platform::blocks();
  const std::uint32_t first = platform::block() * each < count ? platform::block() * each : count;
  return {first, count - first < each ? count - first : each};
}

/// A channel for each block.
SYMMETRA_DEVICE device::Channel own_channel() { return device::Channel{platform::block()}; }

/// Waits until the signals of the blocks of all ranks have arrived. False: the group has failed, and the host gets the
/// reason.
SYMMETRA_DEVICE bool hear_all(const device::Heap& heap) {
  bool heard = true;
  for (std::uint32_t rank = 0; rank < heap.signals.world; ++rank) heard &= device::wait_signal(heap, device::Rank{rank}, own_channel());
  return heard;
}

/// Every rank gets the first share of every rank: each pushes its own.
struct AllGather {
  static SYMMETRA_DEVICE void run(const Work& work) {
    const device::Heap& heap = work.heap;
    const auto [first, elems] = part_of(work.count);
    // The ranks may still read what their last kernel wrote.
    if (!device::barrier(heap.signals, own_channel())) return;
    float* const place = work.output + heap.signals.rank * work.count + first;
    const std::uint32_t world = heap.signals.world;
    // Every rank begins with the next one, so that no two write to the same rank.
    for (std::uint32_t hop = 1; hop <= world; ++hop) {
      device::put(heap, place, work.input + first, device::Rank{(heap.signals.rank + hop) % world}, elems * sizeof(float));
    }
    // A signal states that the bytes of all threads have arrived. A thread signals one rank, so no signal waits for
    // another.
    platform::sync_block();
    for (std::uint32_t rank = platform::thread(); rank < world; rank += platform::threads()) {
      device::put(heap.signals, device::Rank{rank}, own_channel());
    }
    hear_all(heap);
  }
};

/// A rank gets the sum of the shares that all ranks have for it: each pulls, in rank order, so every run has equal bits.
struct ReduceScatter {
  static SYMMETRA_DEVICE void run(const Work& work) {
    const device::Heap& heap = work.heap;
    const auto [first, elems] = part_of(work.count);
    if (!device::barrier(heap.signals, own_channel())) return;
    const float* const mine = work.input + heap.signals.rank * work.count + first;
    for (std::uint32_t i = platform::thread(); i < elems; i += platform::threads()) {
      float sum = 0;
      for (std::uint32_t rank = 0; rank < heap.signals.world; ++rank) sum += device::load(heap, mine + i, device::Rank{rank});
      work.output[first + i] = sum;
    }
    // No rank may change an input while another reads it.
    device::barrier(heap.signals, own_channel());
  }
};

/// Every rank gets the sum of the first shares of all ranks, in one hop: each pushes to all, and sums what it got.
struct AllReduce {
  static SYMMETRA_DEVICE void run(const Work& work) {
    const device::Heap& heap = work.heap;
    const auto [first, elems] = part_of(work.count);
    if (!device::barrier(heap.signals, own_channel())) return;
    float* const slot = work.slots + heap.signals.rank * work.count + first;
    for (std::uint32_t rank = 0; rank < heap.signals.world; ++rank) {
      device::put_signal(heap, slot, work.input + first, device::Rank{rank}, elems * sizeof(float), own_channel());
    }
    if (!hear_all(heap)) return;
    for (std::uint32_t i = platform::thread(); i < elems; i += platform::threads()) {
      float sum = 0;
      for (std::uint32_t rank = 0; rank < heap.signals.world; ++rank) sum += work.slots[rank * work.count + first + i];
      work.output[first + i] = sum;
    }
  }
};

/// Rank r gets share r of every rank.
struct AllToAll {
  static SYMMETRA_DEVICE void run(const Work& work) {
    const device::Heap& heap = work.heap;
    const auto [first, elems] = part_of(work.count);
    if (!device::barrier(heap.signals, own_channel())) return;
    float* const place = work.output + heap.signals.rank * work.count + first;
    for (std::uint32_t rank = 0; rank < heap.signals.world; ++rank) {
      const float* const share = work.input + rank * work.count + first;
      device::put_signal(heap, place, share, device::Rank{rank}, elems * sizeof(float), own_channel());
    }
    hear_all(heap);
  }
};

constexpr std::uint32_t kTile = 8;
constexpr std::uint32_t kInner = 24;

/// A product whose rows are divided among the ranks, and which every rank gets whole: a tile is sent as soon as it is computed.
/// `input` is this rank's left factor, rows x kInner, and then the right factor, kInner x columns. `count` = rows * columns, and there
/// are as many columns as rows.
struct TiledProduct {
  static SYMMETRA_DEVICE void run(const Work& work) {
    const device::Heap& heap = work.heap;
    std::uint32_t rows = 1;
    while (rows * rows < work.count) ++rows;
    const std::uint32_t columns = rows, across = columns / kTile, tiles = rows / kTile * across;
    const float* const right = work.input + rows * kInner;
    float* const result = work.output + heap.signals.rank * work.count;
    if (!device::barrier(heap.signals, own_channel())) return;
    for (std::uint32_t tile = platform::block(); tile < tiles; tile += platform::blocks()) {
      const std::uint32_t row = tile / across * kTile, column = tile % across * kTile;
      for (std::uint32_t i = platform::thread(); i < kTile * kTile; i += platform::threads()) {
        const std::uint32_t down = row + i / kTile, along = column + i % kTile;
        float sum = 0;
        for (std::uint32_t k = 0; k < kInner; ++k) sum += work.input[down * kInner + k] * right[k * columns + along];
        result[down * columns + along] = sum;
      }
      platform::sync_block();
      for (std::uint32_t rank = 0; rank < heap.signals.world; ++rank) {
        if (rank == heap.signals.rank) continue;
        float* line = result + row * columns + column;
        for (std::uint32_t down = 1; down < kTile; ++down, line += columns)
          device::put(heap, line, line, device::Rank{rank}, kTile * sizeof(float));
        // The signal states that the whole tile has arrived.
        device::put_signal(heap, line, line, device::Rank{rank}, kTile * sizeof(float), own_channel());
      }
    }
    for (std::uint32_t tile = platform::block(); tile < tiles; tile += platform::blocks()) {
      for (std::uint32_t rank = 0; rank < heap.signals.world; ++rank) {
        if (rank != heap.signals.rank && !device::wait_signal(heap, device::Rank{rank}, own_channel())) return;
      }
    }
  }
};

}  // namespace example
