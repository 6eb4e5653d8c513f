#include "symmetra/backend.hpp"

#include "cpp/core/call.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;

std::string name(Backend backend) {
  return std::string(call([&] { return core::backend_name(static_cast<std::uint32_t>(backend)); }));
}

Backend backend(const std::string& name) {
  return static_cast<Backend>(call([&] { return core::backend_named(name); }));
}

}  // namespace symmetra
