// Functions of a block of numbers.
//
// Intel's MKL, where torch has it, is faster than anything that takes one vector at a time, and gives what eager
// gives, whatever the length of the block and the position in it. Loops that call these functions are divided
// into several over blocks. Without MKL a block is a loop.
#pragma once

#include <cstdint>

#include "mathematics.h"

namespace choreo {

constexpr int64_t BLOCK = 2048;  // a few of them fit into the nearest cache; a call costs as much as 300 numbers

#if defined(CHOREO_MKL)
#define CHOREO_BLOCKS(name, mkl) \
  inline void name##_block(const float* x, float* y, int64_t count) { \
    for (int64_t i = 0; i < count; i += INT64_C(1) << 30) \
      mkl(static_cast<int>(min_(count - i, INT64_C(1) << 30)), x + i, y + i, AS_EAGER); \
  }
#else
#define CHOREO_BLOCKS(name, mkl) \
  inline void name##_block(const float* x, float* y, int64_t count) { \
    _Pragma("omp simd") for (int64_t i = 0; i < count; ++i) y[i] = name##_(x[i]); \
  }
#endif
CHOREO_BLOCKS(sin, vmsSin) CHOREO_BLOCKS(cos, vmsCos) CHOREO_BLOCKS(tan, vmsTan)
CHOREO_BLOCKS(asin, vmsAsin) CHOREO_BLOCKS(acos, vmsAcos) CHOREO_BLOCKS(atan, vmsAtan)
CHOREO_BLOCKS(log2, vmsLog2) CHOREO_BLOCKS(log10, vmsLog10)
CHOREO_BLOCKS(tanh, vmsTanh) CHOREO_BLOCKS(erfc, vmsErfc)
CHOREO_BLOCKS(exp, vmsExp) CHOREO_BLOCKS(log, vmsLn)
#undef CHOREO_BLOCKS

}  // namespace choreo
