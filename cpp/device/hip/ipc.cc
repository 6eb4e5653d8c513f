#include "cpp/device/hip/ipc.hpp"

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "cpp/device/hip/drain.hpp"
#include "cpp/device/hip/error.hpp"
#include "cpp/device/hip/memory.hpp"
#include "cpp/device/registry.hpp"

namespace symmetra::device::hip {
namespace {

static_assert(sizeof(IpcHandle) == sizeof(hipIpcMemHandle_t));

/// A handle opened for a device. Expects its context to be current.
class Opened {
 public:
  Opened(const Context& context, const IpcHandle& handle, size_t bytes) : context_(context) {
    hipIpcMemHandle_t native;
    std::memcpy(&native, &handle, sizeof(native));
    check(context.hip.hipIpcOpenMemHandle(&address_, native, hipIpcMemLazyEnablePeerAccess), context, {"hipIpcOpenMemHandle", bytes});
  }
  ~Opened() {
    const Cold cold(context_);
    settle(context_, context_.hip.hipIpcCloseMemHandle(address_));
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  void* address() const noexcept { return address_; }

 private:
  const Context& context_;
  void* address_ = nullptr;
};

/// The device that opened it and the handle.
using Key = std::pair<int32_t, std::array<uint8_t, sizeof(IpcHandle)>>;

Key key(const Context& context, const IpcHandle& handle) {
  Key key{context.ordinal, {}};
  std::memcpy(key.second.data(), &handle, sizeof(handle));
  return key;
}

class Imported final : public LocalMemory {
 public:
  Imported(const Context& context, const IpcHandle& handle, size_t bytes)
      : bytes_(bytes), opened_(key(context, handle), context, handle, bytes), drain_(context) {}
  uint8_t* address() const noexcept override { return static_cast<uint8_t*>(opened_.thing().address()); }
  size_t bytes() const noexcept override { return bytes_; }

 private:
  size_t bytes_;
  Use<Key, Opened> opened_;
  Drain drain_;
};

}  // namespace

bool is_exportable(const Context& context, const uint8_t* base) {
  const Cold cold(context);
  hipIpcMemHandle_t native;
  return settle(context, context.hip.hipIpcGetMemHandle(&native, const_cast<uint8_t*>(base))) == hipSuccess;
}

IpcHandle export_ipc(const Context& context, const uint8_t* base) {
  const Cold cold(context);
  hipIpcMemHandle_t native;
  check(context.hip.hipIpcGetMemHandle(&native, const_cast<uint8_t*>(base)), context, {"hipIpcGetMemHandle"});
  IpcHandle handle;
  std::memcpy(&handle, &native, sizeof(handle));
  return handle;
}

std::unique_ptr<Memory> import_ipc(const Context& context, const IpcHandle& handle, size_t bytes) {
  const Cold cold(context);
  return std::make_unique<Imported>(context, handle, bytes);
}

void enable_peer(const Context& context, int32_t ordinal) {
  if (ordinal == context.ordinal) return;
  const Cold cold(context);
  const hipError_t code = context.hip.hipDeviceEnablePeerAccess(ordinal, 0);
  if (code == hipErrorPeerAccessAlreadyEnabled) {
    static_cast<void>(context.hip.hipGetLastError());
    return;
  }
  const std::string call = "hipDeviceEnablePeerAccess(" + std::to_string(ordinal) + ')';
  check(code, context, {call.c_str()});
}

bool can_access(const Context& context, int32_t ordinal) {
  if (ordinal == context.ordinal) return true;
  int answer = 0;
  const std::string call = "hipDeviceCanAccessPeer(" + std::to_string(ordinal) + ')';
  check(context.hip.hipDeviceCanAccessPeer(&answer, context.ordinal, ordinal), context, {call.c_str()});
  return answer != 0;
}

}  // namespace symmetra::device::hip
