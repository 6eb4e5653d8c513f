#include "symmetra/device.hpp"

#include "cpp/core/call.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::share;

Device Device::host() {
  return Device(share(call([] { return core::device_host(); })));
}

Device Device::cuda(std::size_t ordinal) {
  return Device(share(call([&] { return core::device_cuda(ordinal); })));
}

Device Device::hip(std::size_t ordinal) {
  return Device(share(call([&] { return core::device_hip(ordinal); })));
}

std::size_t Device::count(DeviceKind kind) {
  return call([&] { return core::device_count(static_cast<std::uint32_t>(kind)); });
}

DeviceKind Device::kind() const { return static_cast<DeviceKind>(core::device_kind(live(core_))); }

std::int32_t Device::ordinal() const { return core::device_ordinal(live(core_)); }

std::string Device::name() const {
  return std::string(call([&] { return core::device_name(live(core_)); }));
}

void Device::synchronize() const {
  call([&] { core::device_synchronize(live(core_)); });
}

}  // namespace symmetra
