#include "cpp/device/hip/shared.hpp"

#include <string>

#include "cpp/device/hip/descriptor.hpp"
#include "cpp/device/hip/grained.hpp"
#include "cpp/device/hip/physical.hpp"
#include "symmetra/error.hpp"

namespace symmetra::device::hip {
namespace {

/// Uses its own stream: the default stream would wait for the caller's streams, or be refused because of them.
void zero(const Context& context, const Memory& memory) {
  hipStream_t stream = nullptr;
  check(context.api.StreamCreateWithFlags(&stream, hipStreamNonBlocking), context, {"StreamCreateWithFlags"});
  hipError_t code = context.api.MemsetAsync(memory.address(), 0, memory.bytes(), stream);
  if (code == hipSuccess) code = context.api.StreamSynchronize(stream);
  gpu::settle(context.api, context.api.StreamDestroy(stream));
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

size_t granularity(const Context& context) { return kPhysicalIsShareable ? physical_granularity(context) : kGrainedGranularity; }

std::unique_ptr<Memory> new_shared(const Context& context, size_t bytes) {
  require_granularity(context, bytes);
  const Cold cold(context);
  auto memory = kPhysicalIsShareable ? allocate_physical(context, bytes) : allocate_grained(context, bytes);
  zero(context, *memory);
  return memory;
}

std::unique_ptr<Memory> open_shared(const Context& context, int32_t fd, size_t bytes) {
  const FileDescriptor owner(fd);
  require_granularity(context, bytes);
  return kPhysicalIsShareable ? import_physical(context, owner.get(), bytes) : import_grained(context, owner.get(), bytes);
}

std::unique_ptr<Memory> shared_alias(const Context& context, const Memory& memory) {
  const auto* const shared = dynamic_cast<const SharedMemory*>(&memory);
  if (shared == nullptr) throw Error(ErrorKind::kInvalidArgument, "alias_shared of memory that is not from allocate_shared");
  return shared->alias(context);
}

}  // namespace symmetra::device::hip
