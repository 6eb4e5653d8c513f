// The kernels compiled for the CPU.
#include "kernels/host/kernels.hpp"

#include "kernels/dispatch.hpp"

namespace symmetra::kernels::host {
namespace {

template <class Args, void (*kernel)(const Args&)>
void run(const void* args) {
  kernel(*static_cast<const Args*>(args));
}

struct Backend {
  using Entry = host::Entry;
  static constexpr bool kThreadAnItem = false;
  template <auto kernel>
  static Entry entry() {
    return wrapped<kernel>(kernel);
  }

 private:
  template <auto kernel, class Args>
  static Entry wrapped(void (*)(const Args&)) {
    return &run<Args, kernel>;
  }
};

}  // namespace

Entry kernel(Kind kind, const void* args, const Geometry& geometry) noexcept { return kernels::kernel<Backend>(kind, args, geometry); }

}  // namespace symmetra::kernels::host
