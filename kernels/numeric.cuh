// Element types and their reductions.
#pragma once
#include "kernels/numeric/float.cuh"
#include "kernels/numeric/integer.cuh"
#include "kernels/numeric/reduction.cuh"
