/// \file
/// Version of the library and its headers.
#pragma once

#include "symmetra/toolchain.hpp"

/// The version of these headers.
#define SYMMETRA_VERSION_MAJOR 0
#define SYMMETRA_VERSION_MINOR 1
#define SYMMETRA_VERSION_PATCH 0

namespace symmetra {

/// The version of the linked library, "major.minor.patch". A static string.
const char* version() noexcept;

}  // namespace symmetra
