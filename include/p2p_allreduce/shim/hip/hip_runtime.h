/// \file
/// For programs that include <hip/hip_runtime.h> and are compiled where there is no HIP: with this folder among
/// the include paths they find the names of the device that was chosen.
#pragma once

#include "p2p_allreduce/device.hpp"
