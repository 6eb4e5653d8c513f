// A GPU. Backends provide the parts that differ by ADL, in addition to those of graph.hpp:
//   void become_current(const Context&)
//   PointerInfo find_pointer(const Context&, const uint8_t* pointer)
//   Uuid uuid_of(const Context&, int32_t ordinal), of any device
//   shared memory: size_t granularity(const Context&), new_shared(context, bytes), open_shared(context, fd, bytes) and
//   shared_alias(context, memory)
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "cpp/device/device.hpp"
#include "cpp/device/gpu/chain.hpp"
#include "cpp/device/gpu/drain.hpp"
#include "cpp/device/gpu/graph.hpp"
#include "cpp/device/gpu/ipc.hpp"

namespace symmetra::device::gpu {

/// Throws if there is no device `ordinal`.
template <typename Api>
void require_device(const Api& api, int32_t ordinal) {
  const std::string vendor = Api::kVendor;
  int devices = 0;
  if (const auto code = api.GetDeviceCount(&devices); settle(api, code) != Api::Success) {
    throw Error(ErrorKind::kDevice, "no " + vendor + " devices: " + api.GetErrorString(code), code);
  }
  if (ordinal < 0 || ordinal >= devices) {
    throw Error(ErrorKind::kInvalidArgument,
                vendor + " device " + std::to_string(ordinal) + ", but the ordinal must be in 0.." + std::to_string(devices));
  }
}

template <typename Context>
class OpenDevice : public Device {
 public:
  OpenDevice(const Context& context, const Properties& properties, std::string name, std::string versions)
      : context_(context),
        spares_(Spares<Context>::of(context)),
        properties_(properties),
        name_(std::move(name)),
        versions_(std::move(versions)) {
    spares_.add_handle();
  }
  ~OpenDevice() override { spares_.remove_handle(); }
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  Properties properties() const noexcept override { return properties_; }
  const std::string& name() const noexcept override { return name_; }
  const std::string& versions() const noexcept override { return versions_; }
  const char* describe(int32_t native_code) const noexcept override {
    return context_.api.GetErrorString(static_cast<typename Context::Api::Error_t>(native_code));
  }

  std::unique_ptr<Memory> allocate(size_t bytes) const override { return gpu::allocate(context_, bytes); }
  std::unique_ptr<Memory> pin(uint8_t* address, size_t bytes) const override { return gpu::pin(context_, address, bytes); }
  std::unique_ptr<Memory> allocate_shared(size_t bytes) const override { return new_shared(context_, bytes); }
  size_t shared_granularity() const override { return granularity(context_); }
  std::unique_ptr<Memory> import_shared(int32_t fd, size_t bytes) const override { return open_shared(context_, fd, bytes); }
  std::unique_ptr<Memory> alias_shared(const Memory& memory) const override { return shared_alias(context_, memory); }

  PointerInfo classify(const uint8_t* pointer) const override { return find_pointer(context_, pointer); }
  IpcHandle export_ipc(const uint8_t* base) const override { return gpu::export_ipc(context_, base); }
  std::unique_ptr<Memory> import_ipc(const IpcHandle& handle, size_t bytes) const override {
    return gpu::import_ipc(context_, handle, bytes);
  }
  void enable_peer(int32_t ordinal) const override { gpu::enable_peer(context_, ordinal); }
  bool can_access(int32_t ordinal) const override { return gpu::can_access(context_, ordinal); }
  int32_t ordinal_of(const Uuid& uuid) const override { return gpu::ordinal_of(context_, uuid); }
  bool native_atomics(const Uuid& uuid) const override { return gpu::native_atomics(context_, uuid); }

  std::unique_ptr<device::Stream> create_stream(bool urgent) const override { return std::make_unique<Stream<Context>>(context_, urgent); }
  std::unique_ptr<device::Stream> borrow_stream(uint64_t raw) const override { return std::make_unique<Stream<Context>>(context_, raw); }
  std::unique_ptr<device::Event> create_event(bool timed) const override { return std::make_unique<Event<Context>>(context_, timed); }
  void make_current() const override { become_current(context_); }
  std::unique_ptr<Scope> enter() const override {
    struct Entered final : Scope {
      explicit Entered(const Context& context) : cold(context) {}
      Cold<Context> cold;
    };
    return std::make_unique<Entered>(context_);
  }
  void synchronize() const override {
    const auto code = spares_.wait();
    if (code != Context::Api::Success) {
      raise(code, context_.api.GetErrorName(code), context_.api.GetErrorString(code), context_, {"synchronize"});
    }
  }

 private:
  const Context& context_;
  Spares<Context>& spares_;
  Properties properties_;
  std::string name_;
  std::string versions_;
};

}  // namespace symmetra::device::gpu
