#include "cpp/device/cuda/shared.hpp"

#include <string>
#include <utility>

#include "cpp/device/cuda/physical.hpp"

namespace symmetra::device::cuda {
namespace {

class Shared final : public Memory {
 public:
  /// Expects `context` to be current.
  template <typename Acquire>
  Shared(const Context& context, size_t bytes, Call call, Acquire acquire)
      : context_(context),
        physical_(context, call, acquire),
        range_(context, bytes),
        mapping_(context, range_.start(), range_.bytes(), physical_),
        drain_(context) {}
  uint8_t* address() const noexcept override { return reinterpret_cast<uint8_t*>(range_.start()); }
  size_t bytes() const noexcept override { return range_.bytes(); }

  int32_t export_fd() const override {
    const Cold cold(context_);
    return physical_.export_fd(bytes());
  }

  void admit_peers() const {
    const Cold cold(context_);
    int devices = 0;
    check(context_.api.GetDeviceCount(&devices), context_, {"GetDeviceCount"});
    for (int ordinal = 0; ordinal < devices; ++ordinal) {
      if (ordinal == context_.ordinal) continue;
      int answer = 0;
      const auto code = context_.api.DeviceCanAccessPeer(&answer, ordinal, context_.ordinal);
      if (gpu::settle(context_.api, code) != Context::Api::Success || answer == 0) continue;
      const std::string call = "cuMemSetAccess of device " + std::to_string(ordinal);
      check(mapping_.admit(ordinal), context_, {call.c_str(), bytes()});
    }
  }

  CUresult retain(CUmemGenericAllocationHandle* handle) const { return context_.driver.cuMemRetainAllocationHandle(handle, address()); }

 private:
  const Context& context_;
  Physical physical_;
  Reservation range_;
  Mapping mapping_;
  Drain<Context> drain_;  ///< unmapping does not wait for work that still uses the addresses, which would then fault
};

const Shared& shared_of(const Memory& memory, const char* call) {
  const auto* const shared = dynamic_cast<const Shared*>(&memory);
  if (shared == nullptr) throw Error(ErrorKind::kInvalidArgument, std::string(call) + " of memory that is not from allocate_shared");
  return *shared;
}

/// Uses its own stream: the default stream would wait for the caller's streams, or be refused because of them.
void zero(const Context& context, const Memory& memory) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), context, {"StreamCreateWithFlags"});
  cudaError_t code = cudaMemsetAsync(memory.address(), 0, memory.bytes(), stream);
  if (code == cudaSuccess) code = cudaStreamSynchronize(stream);
  gpu::settle(context.api, cudaStreamDestroy(stream));
  check(code, context, {"MemsetAsync", memory.bytes()});
}

void require_granularity(const Context& context, size_t bytes) {
  const size_t unit = granularity(context);
  if (bytes == 0 || bytes % unit != 0) {
    throw Error(ErrorKind::kInvalidArgument,
                "shared memory of " + std::to_string(bytes) + " bytes, but it must be a positive multiple of " + std::to_string(unit));
  }
}

}  // namespace

size_t granularity(const Context& context) {
  const Cold cold(context);
  const CUmemAllocationProp properties = allocation(context);
  size_t granularity = 0;
  check(context.driver.cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), context,
        {"cuMemGetAllocationGranularity"});
  return granularity;
}

std::unique_ptr<Memory> new_shared(const Context& context, size_t bytes) {
  require_granularity(context, bytes);
  const Cold cold(context);
  const CUmemAllocationProp properties = allocation(context);
  auto memory = std::make_unique<Shared>(context, bytes, Call{"cuMemCreate", bytes}, [&](CUmemGenericAllocationHandle* handle) {
    return context.driver.cuMemCreate(handle, bytes, &properties, 0);
  });
  zero(context, *memory);
  return memory;
}

void admit_peers(const Memory& memory) { shared_of(memory, "open_to_peers").admit_peers(); }

std::unique_ptr<Memory> open_shared(const Context& context, int32_t fd, size_t bytes) {
  const FileDescriptor owner(fd);
  require_granularity(context, bytes);
  const Cold cold(context);
  return std::make_unique<Shared>(context, bytes, Call{"cuMemImportFromShareableHandle", bytes}, [&](CUmemGenericAllocationHandle* handle) {
    void* const shareable = reinterpret_cast<void*>(static_cast<intptr_t>(owner.get()));
    return context.driver.cuMemImportFromShareableHandle(handle, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  });
}

std::unique_ptr<Memory> shared_alias(const Context& context, const Memory& memory) {
  const Shared& shared = shared_of(memory, "alias_shared");
  const Cold cold(context);
  return std::make_unique<Shared>(context, shared.bytes(), Call{"cuMemRetainAllocationHandle", shared.bytes()},
                                  [&](CUmemGenericAllocationHandle* handle) { return shared.retain(handle); });
}

}  // namespace symmetra::device::cuda
