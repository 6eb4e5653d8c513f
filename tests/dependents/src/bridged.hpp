#pragma once
#include "rust/cxx.h"

/// The result of an all-reduce of `value` on a group of one rank.
float reduced(float value);
