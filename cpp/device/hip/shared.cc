#include "cpp/device/hip/shared.hpp"

#include <string>

#include "cpp/device/hip/descriptor.hpp"
#include "cpp/device/hip/error.hpp"
#include "cpp/device/hip/grained.hpp"
#include "cpp/device/hip/physical.hpp"
#include "symmetra/error.hpp"

namespace symmetra::device::hip {
namespace {

/// On a stream of its own: the default stream would wait for, or be refused by, the caller's.
void zero(const Context& context, const Memory& memory) {
  hipStream_t stream = nullptr;
  check(context.hip.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), context, {"hipStreamCreateWithFlags"});
  hipError_t code = context.hip.hipMemsetAsync(memory.address(), 0, memory.bytes(), stream);
  if (code == hipSuccess) code = context.hip.hipStreamSynchronize(stream);
  settle(context, context.hip.hipStreamDestroy(stream));
  check(code, context, {"hipMemsetAsync", memory.bytes()});
}

void require_granularity(const Context& context, size_t bytes) {
  const size_t granularity = shared_granularity(context);
  if (bytes == 0 || bytes % granularity != 0) {
    throw Error(ErrorKind::kInvalidArgument, "shared memory of " + std::to_string(bytes) +
                                                 " bytes, but it must be a positive multiple of " + std::to_string(granularity));
  }
}

}  // namespace

size_t shared_granularity(const Context& context) { return kPhysicalIsShareable ? physical_granularity(context) : kGrainedGranularity; }

std::unique_ptr<Memory> allocate_shared(const Context& context, size_t bytes) {
  require_granularity(context, bytes);
  const Cold cold(context);
  auto memory = kPhysicalIsShareable ? allocate_physical(context, bytes) : allocate_grained(context, bytes);
  zero(context, *memory);
  return memory;
}

std::unique_ptr<Memory> import_shared(const Context& context, int32_t fd, size_t bytes) {
  const FileDescriptor owner(fd);
  require_granularity(context, bytes);
  return kPhysicalIsShareable ? import_physical(context, owner.get(), bytes) : import_grained(context, owner.get(), bytes);
}

std::unique_ptr<Memory> alias_shared(const Context& context, const Memory& memory) {
  const auto* const shared = dynamic_cast<const SharedMemory*>(&memory);
  if (shared == nullptr) throw Error(ErrorKind::kInvalidArgument, "alias_shared of memory that is not from allocate_shared");
  return shared->alias(context);
}

}  // namespace symmetra::device::hip
