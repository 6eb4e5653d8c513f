// The waiting commands of a queue. Allocates only when full.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "cpp/device/host/command.hpp"

namespace symmetra::device::host {

class Ring {
 public:
  bool empty() const noexcept { return size_ == 0; }

  /// Reserves space for `more` commands; the only function that throws.
  void reserve(size_t more) {
    if (slots_.size() - size_ >= more) return;
    size_t capacity = slots_.empty() ? kFirstCapacity : slots_.size();
    while (capacity - size_ < more) capacity *= 2;
    std::vector<Command> grown(capacity);
    for (size_t i = 0; i < size_; ++i) grown[i] = std::move(slot(i));
    slots_ = std::move(grown);
    first_ = 0;
  }

  /// Requires reserved space.
  void push(Command&& command) noexcept { slot(size_++) = std::move(command); }

  /// Requires a command. Releases all resources of the slot.
  Command pop() noexcept {
    Command command = std::exchange(slot(0), Command());
    first_ = (first_ + 1) & (slots_.size() - 1);
    --size_;
    return command;
  }

 private:
  static constexpr size_t kFirstCapacity = 64;  // a power of two, as all capacities

  Command& slot(size_t index) noexcept { return slots_[(first_ + index) & (slots_.size() - 1)]; }

  std::vector<Command> slots_;
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace symmetra::device::host
