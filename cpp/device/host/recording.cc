#include "cpp/device/host/recording.hpp"

#include <atomic>
#include <cerrno>
#include <utility>

namespace symmetra::device::host {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Kept::Kept(Kept&& other) noexcept : keepalive_(std::exchange(other.keepalive_, Keepalive{nullptr, nullptr})) {}

Kept::~Kept() {
  if (keepalive_.release) keepalive_.release(keepalive_.data);
}

Recording::Recording() : id_(next_id()) {}

int32_t Recording::append(std::span<const Command> commands, const Keep& keep) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    recorded_.commands.insert(recorded_.commands.end(), commands.begin(), commands.end());
    if (keep.program) recorded_.commands.emplace_back(keep);
    return 0;
  } catch (...) {
    recorded_.incomplete = true;
    return ENOMEM;
  }
}

size_t Recording::move_record(const std::shared_ptr<Marker>& marker, size_t place) {
  const std::lock_guard lock(mutex_);
  recorded_.commands.emplace_back(Record{marker});
  if (place != kNowhere) recorded_.commands[place] = std::monostate{};
  return recorded_.commands.size() - 1;
}

void Recording::keep(Kept kept) {
  const std::lock_guard lock(mutex_);
  recorded_.kept.push_back(std::move(kept));
}

void Recording::add_branch(std::shared_ptr<Queue> queue) {
  const std::lock_guard lock(mutex_);
  branches_.push_back(std::move(queue));
}

std::vector<std::shared_ptr<Queue>> Recording::take_branches() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(branches_, {});
}

Recorded Recording::take() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(recorded_, {});
}

}  // namespace symmetra::device::host
