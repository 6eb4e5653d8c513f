#include "cpp/device/host/bell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "symmetra/device/platform/atomics.hpp"

namespace symmetra::device::host {
namespace {

struct Entry {
  Bell* bell;
  const uint8_t* address;
  size_t bytes;
};

struct Bells {
  std::shared_mutex mutex;
  std::vector<Entry> entries;
};

/// Never destroyed: a thread may still ring when the process ends.
Bells& bells() noexcept {
  static Bells* const all = new Bells;
  return *all;
}

void full_fence() noexcept { platform::fence<platform::Scope::kSystem>(); }

std::atomic_ref<uint32_t> rings(Bell* bell) noexcept { return std::atomic_ref<uint32_t>(bell->rings); }
std::atomic_ref<uint32_t> sleepers(Bell* bell) noexcept { return std::atomic_ref<uint32_t>(bell->sleepers); }

/// Processes share the word, so the futex is not private.
void futex(uint32_t* word, int operation, uint32_t value, const timespec* most) noexcept {
  ::syscall(SYS_futex, word, operation, value, most, nullptr, 0);
}

Bell* bell_of(const void* address) noexcept {
  const auto* const place = static_cast<const uint8_t*>(address);
  const std::shared_lock lock(bells().mutex);
  for (const Entry& entry : bells().entries) {
    if (place >= entry.address && place < entry.address + entry.bytes) return entry.bell;
  }
  return nullptr;
}

}  // namespace

Hung::Hung(Bell* bell, const uint8_t* address, size_t bytes) : bell_(bell) {
  const std::unique_lock lock(bells().mutex);
  bells().entries.push_back({bell, address, bytes});
}

Hung::~Hung() {
  const std::unique_lock lock(bells().mutex);
  std::erase_if(bells().entries, [this](const Entry& entry) { return entry.bell == bell_; });
}

// No wake-up is lost. The storing thread stores, fences, and loads `sleepers`. The sleeper increments `sleepers`, reads
// `rings`, fences, and polls. One of the two fences comes first. If it is the storing thread's, the poll finds the
// stored value. Otherwise the storing thread finds the sleeper, changes `rings`, and wakes it: the futex does not sleep
// on a changed word, and returns if it sleeps already.
void ring() noexcept {
  full_fence();
  const std::shared_lock lock(bells().mutex);
  for (const Entry& entry : bells().entries) {
    if (sleepers(entry.bell).load(std::memory_order_relaxed) == 0) continue;
    rings(entry.bell).fetch_add(1, std::memory_order_release);
    futex(&entry.bell->rings, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

void sleep_until_rung(const void* progress, uint64_t most_ns, bool (*arrived)(void* context), void* context) noexcept {
  const timespec most{static_cast<time_t>(most_ns / 1'000'000'000), static_cast<long>(most_ns % 1'000'000'000)};
  Bell* const bell = bell_of(progress);
  if (bell == nullptr) {
    ::nanosleep(&most, nullptr);
    return;
  }
  sleepers(bell).fetch_add(1, std::memory_order_relaxed);
  const uint32_t seen = rings(bell).load(std::memory_order_relaxed);
  full_fence();
  if (!arrived(context)) futex(&bell->rings, FUTEX_WAIT, seen, &most);
  sleepers(bell).fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace symmetra::device::host
