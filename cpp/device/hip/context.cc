#include "cpp/device/hip/context.hpp"

#include "cpp/device/hip/module.hpp"

namespace symmetra::device::hip {

const Context& primary(int32_t ordinal) {
  return gpu::primary<Context>(ordinal, [](int32_t device) {
    const Context context{runtime(), device};
    load_kernels(context);
    return context;
  });
}

}  // namespace symmetra::device::hip
