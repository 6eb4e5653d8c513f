// Memory of the plain allocator, shared between processes, and between devices of one process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "cpp/device/gpu/memory.hpp"

namespace symmetra::device::gpu {

/// A handle opened on a device. Its constructor expects the context to be current.
template <typename Context>
class Opened {
 public:
  Opened(const Context& context, const IpcHandle& handle, size_t bytes) : context_(context) {
    typename Context::Api::IpcMemHandle_t native;
    static_assert(sizeof(IpcHandle) == sizeof(native));
    std::memcpy(&native, &handle, sizeof(native));
    check(context.api.IpcOpenMemHandle(&address_, native, Context::Api::IpcMemLazyEnablePeerAccess), context, {"IpcOpenMemHandle", bytes});
  }
  ~Opened() {
    const Cold cold(context_);
    settle(context_.api, context_.api.IpcCloseMemHandle(address_));
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  void* address() const noexcept { return address_; }

 private:
  const Context& context_;
  void* address_ = nullptr;
};

/// The opening device and the handle.
using Key = std::pair<int32_t, std::array<uint8_t, sizeof(IpcHandle)>>;

template <typename Context>
Key key(const Context& context, const IpcHandle& handle) {
  Key key{context.ordinal, {}};
  std::memcpy(key.second.data(), &handle, sizeof(handle));
  return key;
}

template <typename Context>
class Imported final : public LocalMemory {
 public:
  Imported(const Context& context, const IpcHandle& handle, size_t bytes)
      : bytes_(bytes), opened_(key(context, handle), context, handle, bytes), drain_(context) {}
  uint8_t* address() const noexcept override { return static_cast<uint8_t*>(opened_.thing().address()); }
  size_t bytes() const noexcept override { return bytes_; }

 private:
  size_t bytes_;
  Use<Key, Opened<Context>> opened_;
  Drain<Context> drain_;
};

template <typename Context>
IpcHandle export_ipc(const Context& context, const uint8_t* base) {
  const Cold cold(context);
  typename Context::Api::IpcMemHandle_t native;
  check(context.api.IpcGetMemHandle(&native, const_cast<uint8_t*>(base)), context, {"IpcGetMemHandle"});
  IpcHandle handle;
  std::memcpy(&handle, &native, sizeof(handle));
  return handle;
}

template <typename Context>
std::unique_ptr<Memory> import_ipc(const Context& context, const IpcHandle& handle, size_t bytes) {
  const Cold cold(context);
  return std::make_unique<Imported<Context>>(context, handle, bytes);
}

template <typename Context>
void enable_peer(const Context& context, int32_t ordinal) {
  if (ordinal == context.ordinal) return;
  const Cold cold(context);
  const auto code = context.api.DeviceEnablePeerAccess(ordinal, 0);
  if (code == Context::Api::ErrorPeerAccessAlreadyEnabled) {
    static_cast<void>(context.api.GetLastError());
    return;
  }
  const std::string call = "DeviceEnablePeerAccess(" + std::to_string(ordinal) + ')';
  check(code, context, {call.c_str()});
}

template <typename Context>
bool can_access(const Context& context, int32_t ordinal) {
  if (ordinal == context.ordinal) return true;
  int answer = 0;
  const std::string call = "DeviceCanAccessPeer(" + std::to_string(ordinal) + ')';
  check(context.api.DeviceCanAccessPeer(&answer, context.ordinal, ordinal), context, {call.c_str()});
  return answer != 0;
}

/// The number of the visible device with this UUID; -1 if there is none.
template <typename Context>
int32_t ordinal_of(const Context& context, const Uuid& uuid) {
  if (uuid_of(context, context.ordinal) == uuid) return context.ordinal;
  int devices = 0;
  check(context.api.GetDeviceCount(&devices), context, {"GetDeviceCount"});
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    if (uuid_of(context, ordinal) == uuid) return ordinal;
  }
  return -1;
}

/// Whether this device changes words atomically in memory of the visible device with this UUID.
template <typename Context>
bool native_atomics(const Context& context, const Uuid& uuid) {
  const int32_t ordinal = ordinal_of(context, uuid);
  if (ordinal < 0 || ordinal == context.ordinal) return ordinal == context.ordinal;
  int answer = 0;
  const std::string call = "DeviceGetP2PAttribute(" + std::to_string(ordinal) + ')';
  check(context.api.DeviceGetP2PAttribute(&answer, Context::Api::DevP2PAttrNativeAtomicSupported, context.ordinal, ordinal), context,
        {call.c_str()});
  return answer != 0;
}

}  // namespace symmetra::device::gpu
