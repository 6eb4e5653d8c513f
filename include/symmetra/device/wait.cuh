// Bounded waits. A wait ends when its condition holds, its deadline has passed, the host has set the abort word, or
// another wait of this rank has given up. It never traps, so the device's context survives.
#pragma once
#include "symmetra/device/abi.hpp"
#include "symmetra/device/platform.hpp"

namespace symmetra::device {

/// False in one build only: bench/safety.cu, which measures the cost of bounds.
#if defined(SYMMETRA_UNBOUNDED_WAITS)
constexpr bool kBounded = false;
#else
constexpr bool kBounded = true;
#endif

/// Whether kernels can time calls: on the CPU always, on GPUs in builds with the feature `timing`. Kernels of other builds
/// contain no instruction for this.
#if defined(SYMMETRA_TIMING) || !(defined(__CUDACC__) || defined(__HIP__))
constexpr bool kTimed = true;
#else
constexpr bool kTimed = false;
#endif

/// How long a wait may last, without the label of the call.
SYMMETRA_DEVICE uint64_t timeout_ns(const Wait& wait) {
  constexpr uint64_t kTime = (uint64_t{1} << kernels::kTimeoutBits) - 1;
  return kTimed ? wait.timeout_ns & kTime : wait.timeout_ns;
}

/// Writes why this rank gives up, unless another wait of this rank did so first. If the host holds failed kernels, returns
/// when the host lets them go: the block of this thread stays, and with it the stream.
SYMMETRA_DEVICE void report(const Wait& wait, uint32_t code, uint32_t op, uint32_t peer, uint32_t epoch, uint64_t theirs0 = 0,
                            uint64_t theirs1 = 0) {
  if (platform::exchange_relaxed(&wait.progress->failed, 1) != 0) return;
  Status* status = wait.status;
  platform::store_pair(reinterpret_cast<uint64_t*>(&status->op), op | uint64_t{peer} << 32, epoch);
  platform::store_pair(&status->sequence, platform::load_relaxed(&wait.progress->done), timeout_ns(wait));
  if ((theirs0 | theirs1) != 0) platform::store_pair(&status->theirs[0], theirs0, theirs1);
  platform::store_release(&status->code, code);
  while (platform::load_relaxed(&status->hold) != 0) platform::nap();
}

/// The waits of one thread in one operation. After one has given up the others return at once: the thread runs to the
/// end of its kernel, past every sync, and sends nothing more.
class Waiter {
 public:
  /// `gave_up`: this rank failed in an earlier operation.
  SYMMETRA_DEVICE Waiter(const Wait& wait, uint32_t op, uint32_t epoch, bool gave_up)
      : wait_(wait), op_(op), epoch_(epoch), gave_up_(gave_up) {}

  SYMMETRA_DEVICE bool gave_up() const { return kBounded && gave_up_; }

  /// Calls `arrived` until it returns true, at least once. Returns false when the wait gave up. `peer` is the rank that
  /// is waited for, and `arrived` may change it.
  template <class Arrived>
  SYMMETRA_DEVICE bool until(const uint32_t& peer, Arrived arrived) {
    return until_any([&] { return peer; }, arrived);
  }
  /// `until`, where `peer()` returns the rank that is waited for. Only checks call `peer()`.
  template <class Peer, class Arrived>
  SYMMETRA_DEVICE bool until_any(Peer peer, Arrived arrived) {
    while (!kBounded && !arrived()) platform::pause();
    if (!kBounded) return true;
    uint32_t spins = gave_up_ ? 1 : platform::kFirstPolls;
    for (uint64_t start_ns = 0; spins != 0; spins = patience(start_ns, peer())) {
      if (start_ns != 0) platform::sleep(spins, wait_.progress, arrived);  // not before the first polls
      // A wait whose data have already arrived returns here, so bounds cost only waits whose first polls failed.
      SYMMETRA_ROLLED
      for (;; platform::pause()) {
        if (arrived()) return true;
        if (--spins == 0) break;
      }
    }
    gave_up_ = true;
    return false;
  }

 private:
  /// The number of polls before the next check; 0: give up. The first check sets the start.
  SYMMETRA_DEVICE uint32_t patience(uint64_t& start_ns, uint32_t peer) const {
    if (gave_up_ || platform::load_relaxed(&wait_.progress->failed) != 0) return 0;
    const uint64_t now_ns = platform::now_ns();
    if (start_ns == 0) start_ns = now_ns;
    const uint64_t waited_ns = now_ns - start_ns;
    uint32_t code = kernels::kStatusOk;
    if (waited_ns > timeout_ns(wait_)) code = kernels::kStatusTimeout;
    if (aborted(now_ns, waited_ns, peer)) code = kernels::kStatusAborted;
    if (code != kernels::kStatusOk) {
      report(wait_, code, op_, peer, epoch_);
      return 0;
    }
    return platform::rest(waited_ns);
  }

  /// A read of the host's word crosses a slow bus. If thousands of waits read it, they would delay each other for
  /// longer than their waits last. So one wait reads it for all, every 64 us, and writes how long it has waited.
  SYMMETRA_DEVICE bool aborted(uint64_t now_ns, uint64_t waited_ns, uint32_t peer) const {
    const uint32_t now = static_cast<uint32_t>(now_ns >> 10), last = platform::load_relaxed(&wait_.progress->looked);
    if (now - last < 64 || platform::exchange_relaxed(&wait_.progress->looked, now) != last) return false;
    const uint64_t waiting = op_ | peer << 8 | platform::load_relaxed(&wait_.progress->done) << 32;
    platform::store_pair(&wait_.status->waiting, waiting, waited_ns);
    return platform::load_relaxed(&wait_.status->abort) != 0;
  }

  const Wait& wait_;
  uint32_t op_;
  uint32_t epoch_;
  bool gave_up_;
};

}  // namespace symmetra::device
