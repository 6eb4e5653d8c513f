#pragma once
#include "rust/cxx.h"

/// What a rank of one sees after an all-reduce of `value`.
float reduced(float value);
