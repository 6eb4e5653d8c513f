#include "cpp/device/hip/device.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "cpp/device/hip/drain.hpp"
#include "cpp/device/hip/error.hpp"
#include "cpp/device/hip/ipc.hpp"
#include "cpp/device/hip/memory.hpp"
#include "cpp/device/hip/shared.hpp"
#include "cpp/device/hip/stream.hpp"
#include "symmetra/error.hpp"

namespace symmetra::device::hip {
namespace {

/// 50221153 is 5.2.21153.
std::string release(int version) {
  return std::to_string(version / 10000000) + '.' + std::to_string(version / 100000 % 100) + '.' + std::to_string(version % 100000);
}

std::string find_versions(const Context& context) {
  int driver = 0;
  int runtime = 0;
  check(context.hip.hipDriverGetVersion(&driver), context, {"hipDriverGetVersion"});
  check(context.hip.hipRuntimeGetVersion(&runtime), context, {"hipRuntimeGetVersion"});
  return "driver " + release(driver) + ", runtime " + release(runtime);
}

std::string find_name(const Context& context) {
  char name[256] = {};
  check(context.hip.hipDeviceGetName(name, sizeof(name) - 1, context.ordinal), context, {"hipDeviceGetName"});
  return name;
}

uint32_t attribute(const Context& context, hipDeviceAttribute_t asked) {
  int value = 0;
  check(context.hip.hipDeviceGetAttribute(&value, asked, context.ordinal), context, {"hipDeviceGetAttribute"});
  return static_cast<uint32_t>(value);
}

Properties find_properties(const Context& context) {
  Properties found{};
  found.kind = kKindHip;
  found.ordinal = context.ordinal;
  size_t memory_bytes = 0;
  check(context.hip.hipDeviceTotalMem(&memory_bytes, context.ordinal), context, {"hipDeviceTotalMem"});
  found.memory_bytes = memory_bytes;
  found.multiprocessors = attribute(context, hipDeviceAttributeMultiprocessorCount);
  found.major = attribute(context, hipDeviceAttributeComputeCapabilityMajor);
  found.minor = attribute(context, hipDeviceAttributeComputeCapabilityMinor);
  // Every runtime has one of the two ways of shared.hpp, and legacy IPC.
  found.shared_fd = 1;
  found.legacy_ipc = 1;
  found.warp = attribute(context, hipDeviceAttributeWarpSize);
  hipUUID uuid{};
  static_assert(sizeof(found.uuid) == sizeof(uuid.bytes));
  check(context.hip.hipDeviceGetUuid(&uuid, context.ordinal), context, {"hipDeviceGetUuid"});
  std::copy(std::begin(uuid.bytes), std::end(uuid.bytes), std::begin(found.uuid));
  return found;
}

class Opened final : public Device {
 public:
  explicit Opened(const Context& context)
      : context_(context), properties_(find_properties(context)), name_(find_name(context)), versions_(find_versions(context)) {}

  Properties properties() const noexcept override { return properties_; }
  const std::string& name() const noexcept override { return name_; }
  const std::string& versions() const noexcept override { return versions_; }
  const char* describe(int32_t native_code) const noexcept override {
    return context_.hip.hipGetErrorString(static_cast<hipError_t>(native_code));
  }

  std::unique_ptr<Memory> allocate(size_t bytes) const override { return hip::allocate(context_, bytes); }
  std::unique_ptr<Memory> pin(uint8_t* address, size_t bytes) const override { return hip::pin(context_, address, bytes); }
  std::unique_ptr<Memory> allocate_shared(size_t bytes) const override { return hip::allocate_shared(context_, bytes); }
  size_t shared_granularity() const override { return hip::shared_granularity(context_); }
  std::unique_ptr<Memory> import_shared(int32_t fd, size_t bytes) const override { return hip::import_shared(context_, fd, bytes); }
  std::unique_ptr<Memory> alias_shared(const Memory& memory) const override { return hip::alias_shared(context_, memory); }

  PointerInfo classify(const uint8_t* pointer) const override { return hip::classify(context_, pointer); }
  IpcHandle export_ipc(const uint8_t* base) const override { return hip::export_ipc(context_, base); }
  std::unique_ptr<Memory> import_ipc(const IpcHandle& handle, size_t bytes) const override {
    return hip::import_ipc(context_, handle, bytes);
  }
  void enable_peer(int32_t ordinal) const override { hip::enable_peer(context_, ordinal); }
  bool can_access(int32_t ordinal) const override { return hip::can_access(context_, ordinal); }

  std::unique_ptr<device::Stream> create_stream(bool urgent) const override { return std::make_unique<Stream>(context_, urgent); }
  std::unique_ptr<device::Stream> borrow_stream(uint64_t raw) const override { return std::make_unique<Stream>(context_, raw); }
  std::unique_ptr<device::Event> create_event() const override { return std::make_unique<Event>(context_); }
  void make_current() const override { check(context_.hip.hipSetDevice(context_.ordinal), context_, {"hipSetDevice"}); }
  void synchronize() const override {
    Drain drain(context_);
    check(drain.wait(), context_, {"synchronize"});
  }

 private:
  const Context& context_;
  Properties properties_;
  std::string name_;
  std::string versions_;
};

}  // namespace

uint32_t count() noexcept {
  try {
    const Runtime& hip = runtime();
    int devices = 0;
    if (hip.hipGetDeviceCount(&devices) == hipSuccess) return static_cast<uint32_t>(devices);
    static_cast<void>(hip.hipGetLastError());
  } catch (...) {
    // No runtime, no devices; open says why.
  }
  return 0;
}

std::shared_ptr<Device> open(int32_t ordinal) {
  const Runtime& hip = runtime();
  int devices = 0;
  if (const hipError_t code = hip.hipGetDeviceCount(&devices); code != hipSuccess) {
    static_cast<void>(hip.hipGetLastError());
    throw Error(ErrorKind::kDevice, std::string("no HIP devices: ") + hip.hipGetErrorString(code), code);
  }
  if (ordinal < 0 || ordinal >= devices) {
    throw Error(ErrorKind::kInvalidArgument,
                "HIP device " + std::to_string(ordinal) + ", but the ordinal must be in 0.." + std::to_string(devices));
  }
  return std::make_shared<Opened>(primary(ordinal));
}

}  // namespace symmetra::device::hip
