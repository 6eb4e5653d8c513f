// Waiting for all work of a device without invalidating a capture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cpp/device/gpu/error.hpp"

namespace symmetra::device::gpu {

/// Waits for its device when it is destroyed. An object that must outlive the device's work holds a Drain, declared
/// after it.
///
/// It waits by freeing a small allocation: cudaFree is documented to wait for all streams, hipFree to wait like
/// hipDeviceSynchronize. Synchronizing the device would fail while any stream of the process is being captured, and on
/// CUDA invalidate that capture. The allocation is made early, so that the wait cannot fail for lack of memory.
template <typename Context>
class Drain {
 public:
  explicit Drain(const Context& context) : context_(context) {
    const Cold cold(context_);
    check(context_.api.Malloc(&held_, 1), context_, {"Malloc", 1});
  }
  ~Drain() {
    if (held_ != nullptr) settle(context_.api, wait());
  }
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;

  /// Waits now and returns the error of failed work. Call once, or once after each renewal.
  typename Context::Api::Error_t wait() noexcept {
    const Cold cold(context_);
    return context_.api.Free(std::exchange(held_, nullptr));
  }

  /// Prepares another wait after a wait. Returns whether the device had memory for the allocation.
  bool renew() noexcept {
    const Cold cold(context_);
    void* held = nullptr;
    if (settle(context_.api, context_.api.Malloc(&held, 1)) != Context::Api::Success) return false;
    held_ = held;
    return true;
  }

 private:
  const Context& context_;
  void* held_ = nullptr;
};

/// Drains of a device that are allocated early, at least one for each open handle of the device. A handle cannot own a
/// drain, because destroying a drain waits for the device.
template <typename Context>
class Spares {
 public:
  explicit Spares(const Context& context) : context_(context) {}
  Spares(const Spares&) = delete;
  Spares& operator=(const Spares&) = delete;

  /// The drains of a device. The object is never destroyed, like the context.
  static Spares& of(const Context& context) {
    struct All {
      std::mutex mutex;
      std::map<int32_t, Spares> spares;
    };
    static All* const all = new All;
    const std::lock_guard lock(all->mutex);
    return all->spares.try_emplace(context.ordinal, context).first->second;
  }

  /// Counts a handle, and allocates a drain for it. A device without memory for a drain opens all the same: a wait allocates.
  void add_handle() {
    {
      const std::lock_guard lock(mutex_);
      if (drains_.size() > handles_++) return;
    }
    try {
      put(std::make_unique<Drain<Context>>(context_));
    } catch (const Error&) {
    }
  }
  void remove_handle() noexcept {
    const std::lock_guard lock(mutex_);
    --handles_;
  }

  /// Waits for the device and returns the error of failed work. Allocates before the wait only if all drains are in use, or if
  /// the device had no memory for a drain when a handle was opened or after an earlier wait.
  typename Context::Api::Error_t wait() {
    std::unique_ptr<Drain<Context>> drain = take();
    const auto code = drain->wait();
    if (drain->renew()) put(std::move(drain));
    return code;
  }

 private:
  void put(std::unique_ptr<Drain<Context>> drain) {
    const std::lock_guard lock(mutex_);
    drains_.push_back(std::move(drain));
  }
  std::unique_ptr<Drain<Context>> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!drains_.empty()) {
        std::unique_ptr<Drain<Context>> drain = std::move(drains_.back());
        drains_.pop_back();
        return drain;
      }
    }
    return std::make_unique<Drain<Context>>(context_);
  }

  const Context& context_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Drain<Context>>> drains_;
  size_t handles_ = 0;
};

}  // namespace symmetra::device::gpu
