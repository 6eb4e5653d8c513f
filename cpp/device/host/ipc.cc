#include "cpp/device/host/ipc.hpp"

namespace symmetra::device::host {
namespace {

constexpr const char* kReason = "the host device has no handles for private memory of another process; use allocate_shared";

}  // namespace

IpcHandle export_ipc(const uint8_t*) { throw Error(ErrorKind::kUnsupported, std::string("export_ipc: ") + kReason); }

std::unique_ptr<Memory> import_ipc(const IpcHandle&, size_t) {
  throw Error(ErrorKind::kUnsupported, std::string("import_ipc: ") + kReason);
}

}  // namespace symmetra::device::host
