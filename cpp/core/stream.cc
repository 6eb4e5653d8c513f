#include "symmetra/stream.hpp"

#include <cstdint>

#include "cpp/core/call.hpp"
#include "cpp/core/recorder.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::share;

Stream::Stream(const Device& device) : core_(share(call([&] { return core::stream_new(live(device.core_)); }))) {}

Stream Stream::borrow(const Device& device, void* native) {
  const std::uint64_t raw = reinterpret_cast<std::uintptr_t>(native);
  return Stream(share(call([&] { return core::stream_borrow(live(device.core_), raw); })));
}

void* Stream::native() const { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(core::stream_native(live(core_)))); }

bool Stream::done() const {
  return call([&] { return core::stream_done(live(core_)); });
}

void Stream::synchronize() const {
  call([&] { core::stream_synchronize(live(core_)); });
}

Graph Stream::capture(const std::function<void(Capture&)>& record) const {
  core::Recorder recorder(record);
  try {
    return Graph(share(call([&] { return core::stream_capture(live(core_), recorder); })));
  } catch (const Error&) {
    recorder.rethrow();
    throw;
  }
}

}  // namespace symmetra

namespace symmetra::core {

void Recorder::record(const Capture& core) {
  symmetra::Capture capture(core);
  try {
    record_(capture);
  } catch (...) {
    thrown_ = std::current_exception();
    throw Error(ErrorKind::kInternal, "the function that records threw");
  }
}

}  // namespace symmetra::core
