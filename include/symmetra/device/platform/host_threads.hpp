// The threads of a launch on a CPU: the place of each thread, and how a thread that waits yields or sleeps.
#pragma once

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <thread>

namespace symmetra::platform::host {

/// Functions by which a thread that waits for peers sleeps, and by which a thread that stored something wakes peers.
struct Doorbell {
  /// Wakes the peers that sleep.
  void (*ring)();
  /// Sleeps until a peer rings, at most `most_ns`; not at all if `arrived(context)`. `progress` is the Progress of the
  /// thread's rank.
  void (*sleep)(const void* progress, uint64_t most_ns, bool (*arrived)(void* context), void* context);
};

/// The calling thread's place in its launch. The launcher sets it. A thread outside a launch is a block by itself,
/// without shared memory.
struct Thread {
  uint32_t thread;
  uint32_t threads;  ///< threads of the block
  uint32_t block;
  uint32_t blocks;
  std::barrier<>* barrier;             ///< of the block; may be null when threads == 1
  uint8_t* shared;                     ///< of the block, 16-byte aligned
  const Doorbell* doorbell = nullptr;  ///< null: the thread sleeps by the clock, and no peer sleeps on a doorbell
};
inline thread_local Thread current{0, 1, 0, 1, nullptr, nullptr};

/// The start of a block's shared memory is reserved for sync_block_or.
constexpr uint32_t kReservedSharedBytes = 16;

inline uint64_t now_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

/// Whether a waiting thread should yield or sleep. A yield costs less than a microsecond while cores are idle or run
/// ranks that also yield. With a busy process on the core, a yield costs that process's time slice, which is
/// milliseconds, even if data have arrived. A sleeping thread is run as soon as a peer rings, but a sleep costs tens of
/// microseconds. So after a long yield the thread sleeps in its next waits, and then tries a yield again.
class Yields {
 public:
  void yield() {
    const uint64_t start_ns = now_ns();
    std::this_thread::yield();
    if (now_ns() - start_ns < kLongNs) {
      if (++short_ == kShortInARow) period_ = kShortestPeriod;
      return;
    }
    short_ = 0;
    sleeps_ = period_;
    period_ = std::min(4 * period_, kLongestPeriod);
  }
  /// Whether the thread should sleep now.
  bool take_sleep() { return sleeps_ != 0 && sleeps_-- != 0; }

 private:
  /// Longer than a rank works between two yields, and shorter than the time slice of a busy process.
  static constexpr uint64_t kLongNs = 1'000'000;
  static constexpr uint32_t kShortestPeriod = 128, kLongestPeriod = 8192, kShortInARow = 256;

  uint32_t sleeps_ = 0;  ///< before the next yield
  uint32_t period_ = kShortestPeriod;
  uint32_t short_ = 0;  ///< yields since the last long one
};
inline thread_local Yields yields;

/// The result of `rest` for a thread that sleeps on its doorbell.
constexpr uint32_t kOnePoll = 1;
/// The first sleep of a wait, the longest sleep of a short wait, and the longest of all. Sleeps end by themselves,
/// because a peer rings only when the peer waits or ends, and a store to the abort word rings no doorbell.
constexpr uint64_t kFirstSleepNs = 50'000, kMostSleepNs = 500'000, kLongestSleepNs = 4'000'000;
inline thread_local uint64_t sleep_ns = kFirstSleepNs;  ///< of the next sleep
inline thread_local bool rings = false;                 ///< whether this is the first check of a wait

}  // namespace symmetra::platform::host
