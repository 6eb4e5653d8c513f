#include "cpp/device/hip/context.hpp"

#include <map>
#include <mutex>

#include "cpp/device/hip/module.hpp"

namespace symmetra::device::hip {
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
  const Context context{runtime(), ordinal};
  load_kernels(context);
  return all.contexts.emplace(ordinal, context).first->second;
}

}  // namespace symmetra::device::hip
