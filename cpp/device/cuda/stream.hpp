// Work in order, and points in it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <typeinfo>

#include "cpp/device/cuda/context.hpp"
#include "cpp/device/device.hpp"

namespace symmetra::device::cuda {

/// The object of this room behind an interface, nullptr where it is another room's.
template <typename Here, typename Base>
const Here* here(const Base& object) noexcept {
  return typeid(object) == typeid(Here) ? static_cast<const Here*>(&object) : nullptr;
}

struct EventDestroy {
  void operator()(cudaEvent_t event) const noexcept;
};
struct StreamDestroy {
  void operator()(cudaStream_t stream) const noexcept;
};

class Event final : public device::Event {
 public:
  explicit Event(const Context& context);
  ~Event() override;
  bool done() const override;
  void synchronize() const override;
  double elapsed_us(const device::Event& start) const override;
  cudaEvent_t handle() const noexcept { return event_.get(); }

 private:
  const Context& context_;
  std::unique_ptr<CUevent_st, EventDestroy> event_;
};

class Stream final : public device::Stream {
 public:
  /// A new stream, which does not wait for the legacy default stream. `urgent`: of the highest priority.
  Stream(const Context& context, bool urgent);
  /// The caller's. Throws where it belongs to another device, unless it is being captured.
  Stream(const Context& context, uint64_t raw);
  ~Stream() override;

  uint64_t raw() const noexcept override { return reinterpret_cast<uint64_t>(handle_); }
  bool done() const override;
  void synchronize() const override;
  int32_t copy(uint8_t* to, const uint8_t* from, size_t bytes) const noexcept override;
  int32_t fill(uint8_t* to, uint8_t value, size_t bytes) const noexcept override;
  int32_t record(const device::Event& event) const noexcept override;
  int32_t wait(const device::Event& event) const noexcept override;
  int32_t launch(kernels::Kind kind, const uint8_t* args, const kernels::Geometry& geometry) const noexcept override;
  bool capturing() const override;
  std::unique_ptr<Capture> begin_capture() const override;

  const Context& context() const noexcept { return context_; }
  cudaStream_t handle() const noexcept { return handle_; }

 private:
  const Context& context_;
  std::unique_ptr<CUstream_st, StreamDestroy> owned_;  ///< empty for a stream of the caller's
  cudaStream_t handle_;
};

}  // namespace symmetra::device::cuda
