#include "symmetra/types.hpp"

#include "cpp/core/call.hpp"
#include "symmetra/src/capi/mod.rs.h"
#include "symmetra/version.hpp"

namespace symmetra {

using core::call;

std::size_t size_bytes(Dtype dtype) {
  return call([&] { return core::dtype_bytes(static_cast<std::uint32_t>(dtype)); });
}

std::string name(Dtype dtype) {
  return std::string(call([&] { return core::dtype_name(static_cast<std::uint32_t>(dtype)); }));
}

std::string name(Reduction reduction) {
  return std::string(call([&] { return core::reduction_name(static_cast<std::uint32_t>(reduction)); }));
}

Reduction reduction(const std::string& name) {
  return static_cast<Reduction>(call([&] { return core::reduction_named(name); }));
}

std::string name(Algorithm algorithm) {
  return std::string(call([&] { return core::algorithm_name(static_cast<std::uint32_t>(algorithm)); }));
}

Algorithm algorithm(const std::string& name) {
  return static_cast<Algorithm>(call([&] { return core::algorithm_named(name); }));
}

std::string name(Codec codec) {
  return std::string(call([&] { return core::codec_name(static_cast<std::uint32_t>(codec)); }));
}

Codec codec(const std::string& name) {
  return static_cast<Codec>(call([&] { return core::codec_named(name); }));
}

#define SYMMETRA_TEXT(number) #number
#define SYMMETRA_DOTTED(major, minor, patch) SYMMETRA_TEXT(major) "." SYMMETRA_TEXT(minor) "." SYMMETRA_TEXT(patch)

const char* version() noexcept { return SYMMETRA_DOTTED(SYMMETRA_VERSION_MAJOR, SYMMETRA_VERSION_MINOR, SYMMETRA_VERSION_PATCH); }

}  // namespace symmetra
