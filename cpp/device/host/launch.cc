#include "cpp/device/host/launch.hpp"

#include <cerrno>

#include "cpp/device/host/bell.hpp"
#include "cpp/device/host/thread.hpp"
#include "symmetra/device/platform/host.hpp"
#include "symmetra/error.hpp"

namespace symmetra::device::host {
namespace {

constexpr platform::host::Doorbell kDoorbell{&ring, &sleep_until_rung};

}  // namespace

int32_t check_geometry(const kernels::Geometry& geometry) noexcept {
  if (geometry.blocks == 0 || geometry.blocks > kernels::kMaxBlocks || geometry.threads == 0) return EINVAL;
  return uint64_t{geometry.blocks} * geometry.threads > kMaxLaunchThreads ? EINVAL : 0;
}

Crew::~Crew() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begin_.notify_all();
  for (std::thread& member : members_) member.join();
}

int32_t Crew::run(const Kernel& kernel) noexcept {
  const uint64_t threads = uint64_t{kernel.geometry.blocks} * kernel.geometry.threads;
  try {
    prepare(kernel.geometry);
    grow(threads - 1);
  } catch (const Error& error) {
    return static_cast<int32_t>(error.native_code());
  } catch (...) {
    return ENOMEM;
  }
  if (threads == 1) {
    run_thread(kernel, 0);
    return 0;
  }
  {
    const std::lock_guard lock(mutex_);
    kernel_ = &kernel;
    wanted_ = running_ = threads - 1;
    ++launches_;
  }
  begin_.notify_all();
  run_thread(kernel, 0);
  std::unique_lock lock(mutex_);
  end_.wait(lock, [this] { return running_ == 0; });
  return 0;
}

// Barriers and shared memory are kept for the next launch of equal shape. Shared memory has the exact size, so that
// AddressSanitizer detects a kernel that exceeds it.
void Crew::prepare(const kernels::Geometry& geometry) {
  if (geometry.threads > 1) {
    if (barrier_threads_ != geometry.threads) barriers_.clear();
    barrier_threads_ = geometry.threads;
    while (barriers_.size() < geometry.blocks) barriers_.emplace_back(static_cast<std::ptrdiff_t>(geometry.threads));
  }
  if (geometry.shared_bytes > 0) {
    if (shared_bytes_ != geometry.shared_bytes) shared_.clear();
    shared_bytes_ = geometry.shared_bytes;
    shared_.reserve(geometry.blocks);
    while (shared_.size() < geometry.blocks) {
      shared_.emplace_back(static_cast<uint8_t*>(::operator new(geometry.shared_bytes, kSharedAlignment)));
    }
  }
}

void Crew::grow(size_t members) {
  members_.reserve(members);
  while (members_.size() < members) {
    const uint64_t member = members_.size() + 1;
    members_.push_back(start_thread("symmetra-crew", [this, member, seen = launches_] { serve(member, seen); }));
  }
}

// A participating member cannot miss a launch: the next launch begins after all members are done.
void Crew::serve(uint64_t member, uint64_t seen) noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    begin_.wait(lock, [&] { return stopping_ || launches_ != seen; });
    if (stopping_) return;
    seen = launches_;
    if (member > wanted_) continue;
    const Kernel* kernel = kernel_;
    lock.unlock();
    run_thread(*kernel, member);
    lock.lock();
    if (--running_ == 0) end_.notify_one();
  }
}

void Crew::run_thread(const Kernel& kernel, uint64_t index) noexcept {
  const kernels::Geometry& geometry = kernel.geometry;
  const auto block = static_cast<uint32_t>(index / geometry.threads);
  platform::host::current = platform::host::Thread{
      .thread = static_cast<uint32_t>(index % geometry.threads),
      .threads = geometry.threads,
      .block = block,
      .blocks = geometry.blocks,
      .barrier = geometry.threads > 1 ? &barriers_[block] : nullptr,
      .shared = geometry.shared_bytes > 0 ? shared_[block].get() : nullptr,
      .doorbell = &kDoorbell,
  };
  kernel.entry(kernel.args);
  ring();  // peers may sleep until a value of this thread arrives
}

}  // namespace symmetra::device::host
