/// \file
/// For programs that include <hip/hip_runtime.h> and are compiled without HIP. With this folder among the include paths
/// they get the names of the chosen device.
#pragma once

#include "p2p_allreduce/device.hpp"
