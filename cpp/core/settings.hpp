// Settings of the public headers, converted for Rust.
#pragma once

#include "symmetra/config.hpp"

namespace symmetra::core {

struct Settings;

Settings settings_of(const Config& config);

}  // namespace symmetra::core
