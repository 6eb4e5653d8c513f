#include "cpp/device/host/registry.hpp"

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <iterator>
#include <string>
#include <utility>

#include "cpp/device/host/error.hpp"
#include "cpp/device/host/queue.hpp"

namespace symmetra::device::host {

uint64_t Registry::add_queue(std::shared_ptr<Queue> queue) {
  static std::atomic<uint64_t> next_key{1};
  const std::lock_guard lock(mutex_);
  const uint64_t key = next_key.fetch_add(1, std::memory_order_relaxed);
  queues_.emplace(key, std::move(queue));
  return key;
}

std::shared_ptr<Queue> Registry::queue(uint64_t key) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = queues_.find(key); found != queues_.end()) return found->second;
  throw Error(ErrorKind::kInvalidArgument,
              "borrow_stream: the handle is " + std::to_string(key) +
                  ", but a handle of the host device is that of a stream of the same device that has not ended (Stream::native)");
}

void Registry::remove_queue(uint64_t key) noexcept {
  const std::lock_guard lock(mutex_);
  queues_.erase(key);
}

// Keys ascend and are never reused, so the walk needs neither a copy of the map, which a destructor might fail to
// allocate, nor a lock while it waits.
void Registry::drain() const noexcept {
  uint64_t key = 0;
  for (;;) {
    std::shared_ptr<Queue> queue;
    {
      const std::lock_guard lock(mutex_);
      const auto next = queues_.upper_bound(key);
      if (next == queues_.end()) return;
      key = next->first;
      queue = next->second;
    }
    queue->wait_for(queue->enqueued());
  }
}

void Registry::throw_if_failed() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, queue] : queues_) queue->throw_if_failed("Device::synchronize");
}

void Registry::add_range(const PointerInfo& info) {
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(info.base);
  const bool meets_next = next != ranges_.end() && next->first - info.base < info.bytes;
  const bool meets_previous = next != ranges_.begin() && info.base - std::prev(next)->first < std::prev(next)->second.bytes;
  if (meets_next || meets_previous) {
    throw Error(ErrorKind::kInvalidArgument, std::to_string(info.bytes) + " bytes at address " + std::to_string(info.base) +
                                                 " overlap memory that this device knows already");
  }
  ranges_.emplace_hint(next, info.base, info);
}

void Registry::remove_range(uint64_t base) noexcept {
  const std::lock_guard lock(mutex_);
  ranges_.erase(base);
  files_.erase(base);
}

void Registry::add_file(uint64_t base, int fd) {
  const std::lock_guard lock(mutex_);
  files_[base] = fd;
}

std::pair<int, uint64_t> Registry::file_of(const uint8_t* pointer) const {
  const uint64_t base = classify(pointer).base;
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(base);
  if (base == 0 || found == files_.end()) {
    throw Error(ErrorKind::kUnsupported, "export_piece: the memory at " + std::to_string(reinterpret_cast<uint64_t>(pointer)) +
                                             " is not from allocate_shared of this device");
  }
  const int fd = ::fcntl(found->second, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) throw_system("fcntl(F_DUPFD_CLOEXEC) of descriptor " + std::to_string(found->second), errno);
  return {fd, reinterpret_cast<uint64_t>(pointer) - base};
}

PointerInfo Registry::classify(const uint8_t* pointer) const {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  const std::lock_guard lock(mutex_);
  auto range = ranges_.upper_bound(address);
  if (range != ranges_.begin()) {
    --range;
    if (address - range->second.base < range->second.bytes) return range->second;
  }
  return PointerInfo{kPointerUnknown, -1, 0, 0};
}

}  // namespace symmetra::device::host
