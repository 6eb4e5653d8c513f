// The devices of this process, and a guard for cold functions.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "cpp/device/gpu/api.hpp"

namespace symmetra::device::gpu {

/// The context of a device: the result of the first `make(ordinal)`. Objects may refer to it forever.
template <typename Context, typename Make>
const Context& primary(int32_t ordinal, Make make) {
  struct Primaries {
    std::mutex mutex;
    std::map<int32_t, Context> contexts;
  };
  // Never destroyed, because objects with static storage may be destroyed later.
  static Primaries* const all = new Primaries;
  const std::lock_guard lock(all->mutex);
  if (const auto found = all->contexts.find(ordinal); found != all->contexts.end()) return found->second;
  return all->contexts.emplace(ordinal, make(ordinal)).first->second;
}

/// Makes a context current in a cold function, and also lets the thread allocate, free and query while any thread
/// captures a stream. Otherwise these calls would fail and invalidate that capture.
template <typename Context>
class Cold {
 public:
  explicit Cold(const Context& context) noexcept : context_(context), current_(context) { exchange(); }
  ~Cold() { exchange(); }
  Cold(const Cold&) = delete;
  Cold& operator=(const Cold&) = delete;

 private:
  void exchange() noexcept { static_cast<void>(context_.api.ThreadExchangeStreamCaptureMode(&mode_)); }

  const Context& context_;
  typename Context::Current current_;
  typename Context::Api::StreamCaptureMode mode_ = Context::Api::StreamCaptureModeRelaxed;
};

}  // namespace symmetra::device::gpu
