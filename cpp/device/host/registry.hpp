// The objects of a device: its active queues, for which freeing memory waits, and its memory, for classifying pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "cpp/device/device.hpp"

namespace symmetra::device::host {

class Queue;

class Registry {
 public:
  explicit Registry(int32_t ordinal) noexcept : ordinal_(ordinal) {}

  int32_t ordinal() const noexcept { return ordinal_; }

  /// Returns the key with which to remove the queue after it is drained: the handle of its stream. Keys of a process
  /// are never 0 and never reused.
  uint64_t add_queue(std::shared_ptr<Queue> queue);
  void remove_queue(uint64_t key) noexcept;
  /// The queue with this key. Throws if there is none.
  std::shared_ptr<Queue> queue(uint64_t key) const;
  /// Blocks until all work that was enqueued before the call is done.
  void drain() const noexcept;
  /// Throws if a command of any queue has failed.
  void throw_if_failed() const;

  /// `info` describes the whole allocation; `info.base` is the key with which to remove it. Throws if it overlaps another.
  void add_range(const PointerInfo& info);
  void remove_range(uint64_t base) noexcept;
  PointerInfo classify(const uint8_t* pointer) const;

  /// The file of memory from allocate_shared that starts at `base`, until remove_range.
  void add_file(uint64_t base, int fd);
  /// A new descriptor of the file that contains `pointer`, owned by the caller, and the offset from the start of the memory. Throws if
  /// there is none.
  std::pair<int, uint64_t> file_of(const uint8_t* pointer) const;

 private:
  const int32_t ordinal_;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Queue>> queues_;
  std::map<uint64_t, PointerInfo> ranges_;
  std::map<uint64_t, int> files_;
};

}  // namespace symmetra::device::host
