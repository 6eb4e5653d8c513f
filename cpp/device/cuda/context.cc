#include "cpp/device/cuda/context.hpp"

#include <map>
#include <mutex>

#include "cpp/device/cuda/error.hpp"
#include "kernels/cuda/kernels.hpp"

namespace symmetra::device::cuda {
namespace {

struct Primaries {
  std::mutex mutex;
  std::map<int32_t, Context> contexts;
};

// Never destroyed, because objects with static storage may outlive any order of destruction.
Primaries& primaries() {
  static Primaries* const all = new Primaries;
  return *all;
}

}  // namespace

const Context& primary(int32_t ordinal) {
  Primaries& all = primaries();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.contexts.find(ordinal); found != all.contexts.end()) return found->second;
  Context context{driver(), ordinal, nullptr};
  // First by the runtime, which loads this binary's kernels into it.
  check(cudaInitDevice(ordinal, 0, 0), context, {"cudaInitDevice"});
  check(context.driver.cuDevicePrimaryCtxRetain(&context.handle, ordinal), context, {"cuDevicePrimaryCtxRetain"});
  const Current current(context);
  check(static_cast<cudaError_t>(kernels::cuda::load_all()), context, {"cudaFuncGetAttributes"});
  return all.contexts.emplace(ordinal, context).first->second;
}

}  // namespace symmetra::device::cuda
