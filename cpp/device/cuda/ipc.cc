#include "cpp/device/cuda/ipc.hpp"

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "cpp/device/cuda/drain.hpp"
#include "cpp/device/cuda/error.hpp"
#include "cpp/device/cuda/memory.hpp"
#include "cpp/device/registry.hpp"

namespace symmetra::device::cuda {
namespace {

static_assert(sizeof(IpcHandle) == sizeof(cudaIpcMemHandle_t));

/// A handle opened for a device. Expects its context to be current.
class Opened {
 public:
  Opened(const Context& context, const IpcHandle& handle, size_t bytes) : context_(context) {
    cudaIpcMemHandle_t native;
    std::memcpy(&native, &handle, sizeof(native));
    check(cudaIpcOpenMemHandle(&address_, native, cudaIpcMemLazyEnablePeerAccess), context, {"cudaIpcOpenMemHandle", bytes});
  }
  ~Opened() {
    const Cold cold(context_);
    settle(cudaIpcCloseMemHandle(address_));
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

IpcHandle export_ipc(const Context& context, const uint8_t* base) {
  const Cold cold(context);
  cudaIpcMemHandle_t native;
  check(cudaIpcGetMemHandle(&native, const_cast<uint8_t*>(base)), context, {"cudaIpcGetMemHandle"});
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
  const cudaError_t code = cudaDeviceEnablePeerAccess(ordinal, 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return;
  }
  const std::string call = "cudaDeviceEnablePeerAccess(" + std::to_string(ordinal) + ')';
  check(code, context, {call.c_str()});
}

bool can_access(const Context& context, int32_t ordinal) {
  if (ordinal == context.ordinal) return true;
  int answer = 0;
  const std::string call = "cudaDeviceCanAccessPeer(" + std::to_string(ordinal) + ')';
  check(cudaDeviceCanAccessPeer(&answer, context.ordinal, ordinal), context, {call.c_str()});
  return answer != 0;
}

}  // namespace symmetra::device::cuda
