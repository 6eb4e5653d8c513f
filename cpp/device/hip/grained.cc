#include "cpp/device/hip/grained.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "cpp/device/gpu/ipc.hpp"
#include "cpp/device/hip/descriptor.hpp"
#include "symmetra/error.hpp"

namespace symmetra::device::hip {
namespace {

/// The contents of the file whose descriptor is sent.
struct Ticket {
  uint64_t magic;
  uint64_t bytes;
  IpcHandle handle;
};
constexpr uint64_t kMagic = 0x74656B6369742D73;

/// The allocation of another device in this process, at its address.
class Alias final : public gpu::LocalMemory {
 public:
  Alias(const Context& context, uint8_t* address, size_t bytes) : address_(address), bytes_(bytes), drain_(context) {}
  uint8_t* address() const noexcept override { return address_; }
  size_t bytes() const noexcept override { return bytes_; }

 private:
  uint8_t* address_;
  size_t bytes_;
  Drain<Context> drain_;
};

class Grained final : public SharedMemory {
 public:
  /// Expects `context` to be current.
  Grained(const Context& context, size_t bytes) : context_(context), bytes_(bytes) {
    check(context.api.ExtMallocWithFlags(&address_, bytes, kSharedFlags), context, {"ExtMallocWithFlags", bytes});
  }
  ~Grained() override {
    const Cold cold(context_);
    gpu::settle(context_.api, context_.api.Free(address_));
  }
  uint8_t* address() const noexcept override { return static_cast<uint8_t*>(address_); }
  size_t bytes() const noexcept override { return bytes_; }

  int32_t export_fd() const override {
    const Ticket ticket{kMagic, bytes_, gpu::export_ipc(context_, address())};
    FileDescriptor file(memfd_create("symmetra-hip", MFD_CLOEXEC));
    if (file.get() < 0 || pwrite(file.get(), &ticket, sizeof(ticket), 0) != ssize_t{sizeof(ticket)}) {
      const int code = errno;
      throw Error(ErrorKind::kSystem, "a file for an IPC handle: " + std::generic_category().message(code), code);
    }
    return file.release();
  }

  std::unique_ptr<Memory> alias(const Context& context) const override {
    gpu::enable_peer(context, context_.ordinal);
    return std::make_unique<Alias>(context, address(), bytes_);
  }

 private:
  const Context& context_;
  size_t bytes_;
  void* address_ = nullptr;
};

}  // namespace

std::unique_ptr<Memory> allocate_grained(const Context& context, size_t bytes) { return std::make_unique<Grained>(context, bytes); }

std::unique_ptr<Memory> import_grained(const Context& context, int32_t fd, size_t bytes) {
  Ticket ticket{};
  const bool read = pread(fd, &ticket, sizeof(ticket), 0) == ssize_t{sizeof(ticket)};
  if (!read || ticket.magic != kMagic) throw Error(ErrorKind::kInvalidArgument, "import_shared of a descriptor that is not from export_fd");
  if (ticket.bytes != bytes) {
    throw Error(ErrorKind::kInvalidArgument,
                "import_shared of " + std::to_string(bytes) + " bytes, but the memory has " + std::to_string(ticket.bytes));
  }
  return gpu::import_ipc(context, ticket.handle, bytes);
}

}  // namespace symmetra::device::hip
