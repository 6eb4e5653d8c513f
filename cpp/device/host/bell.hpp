// Lets threads of kernels sleep until a peer may have stored the awaited value. Each allocation of allocate_shared has
// a bell on a page before its start, so every process that maps the allocation can ring.
#pragma once

#include <cstddef>
#include <cstdint>

namespace symmetra::device::host {

/// Located in shared memory. All zero is a bell without sleepers.
struct Bell {
  uint32_t rings;     ///< the futex: a sleeper sleeps while the word is unchanged since before its last poll
  uint32_t sleepers;  ///< threads that sleep or are about to. A killed sleeper stays counted, which only causes needless wake-ups
};

/// The entry of a mapped allocation in the process's list of bells.
class Hung {
 public:
  /// `bell` belongs to the `bytes` at `address`, and outlives the object.
  Hung(Bell* bell, const uint8_t* address, size_t bytes);
  ~Hung();
  Hung(const Hung&) = delete;
  Hung& operator=(const Hung&) = delete;

 private:
  Bell* bell_;
};

/// Wakes the threads that sleep on bells of memory that this process maps. They can read the values that this thread
/// stored before.
void ring() noexcept;

/// Sleeps until a thread rings the bell of the allocation that contains `progress`, at most `most_ns`; not at all if
/// `arrived(context)`. May return spuriously.
void sleep_until_rung(const void* progress, uint64_t most_ns, bool (*arrived)(void* context), void* context) noexcept;

}  // namespace symmetra::device::host
