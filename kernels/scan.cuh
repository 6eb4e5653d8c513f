// Sums and prefixes of one value a thread, over a block. Any number of threads; the order of whole numbers does not matter.
#pragma once
#include "symmetra/device/platform.hpp"

namespace symmetra::kernels {

/// Block-shared memory of a scan: two words a thread.
constexpr uint32_t scan_bytes(uint32_t threads) { return threads * 8; }

/// What the threads before this one have, and what all have.
struct Scanned {
  uint32_t before;
  uint32_t all;
};

/// Adds up one value a thread, in doubling steps. All threads of the block call it. `words`: two a thread, which are free
/// again when it returns.
SYMMETRA_DEVICE Scanned block_scan(uint32_t value, uint32_t* words) {
  const uint32_t threads = platform::threads(), mine = platform::thread();
  uint32_t *from = words, *into = words + threads;
  from[mine] = value;
  platform::sync_block();
  for (uint32_t step = 1; step < threads; step *= 2) {
    into[mine] = from[mine] + (mine >= step ? from[mine - step] : 0);
    platform::sync_block();
    uint32_t* const other = from;
    from = into;
    into = other;
  }
  const Scanned scanned{from[mine] - value, from[threads - 1]};
  platform::sync_block();  // all have read
  return scanned;
}

/// The largest value of a thread. All threads of the block call it. `words`: one a thread, which are free again when it
/// returns.
SYMMETRA_DEVICE uint32_t block_max(uint32_t value, uint32_t* words) {
  const uint32_t mine = platform::thread();
  words[mine] = value;
  platform::sync_block();
  for (uint32_t count = platform::threads(); count > 1;) {
    const uint32_t half = (count + 1) / 2;
    if (mine + half < count && words[mine + half] > words[mine]) words[mine] = words[mine + half];
    platform::sync_block();
    count = half;
  }
  const uint32_t largest = words[0];
  platform::sync_block();  // all have read
  return largest;
}

/// The part of `count` items that this thread walks: as long as that of any other thread, but for the last.
struct Run {
  uint32_t begin;
  uint32_t end;

  SYMMETRA_DEVICE explicit Run(uint32_t count) {
    const uint32_t each = (count + platform::threads() - 1) / platform::threads();
    begin = platform::thread() * each < count ? platform::thread() * each : count;
    end = count - begin < each ? count : begin + each;
  }
};

}  // namespace symmetra::kernels
