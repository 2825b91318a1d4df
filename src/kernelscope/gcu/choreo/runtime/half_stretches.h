// Conversions between f16 and f32 of a whole stretch of a long loop (see loops/stretches.py).
//
// The loop itself then computes with floats alone. One that converts number by number calls a function for each
// vector of each array, which costs more than an addition.
#pragma once

#include <cstdint>

#include "element_types.h"
#include "memory.h"

namespace choreo {

#if defined(CHOREO_F16_INSTRUCTIONS)
#if defined(__AVX512F__)
constexpr int64_t HALVES_AT_ONCE = 16;
#else
constexpr int64_t HALVES_AT_ONCE = 8;
#endif
typedef float half_vector __attribute__((vector_size(HALVES_AT_ONCE * 4), aligned(4), may_alias));
struct half_memory {
  uint16_t bits[HALVES_AT_ONCE];
} __attribute__((may_alias));
#endif

inline void widen_stretch(const f16* from, float* to, int64_t count = STRETCH) {
  int64_t i = 0;
#if defined(CHOREO_F16_INSTRUCTIONS)
  for (; i + HALVES_AT_ONCE <= count; i += HALVES_AT_ONCE) {
    half_vector wide;
    asm("vcvtph2ps %1, %0" : "=v"(wide) : "m"(*reinterpret_cast<const half_memory*>(from + i)));
    *reinterpret_cast<half_vector*>(to + i) = wide;
  }
#endif
  for (; i < count; ++i) to[i] = f16::widen(from[i].bits);
}

inline void narrow_stretch(const float* from, f16* to, int64_t count = STRETCH) {
  int64_t i = 0;
#if defined(CHOREO_F16_INSTRUCTIONS)
  for (; i + HALVES_AT_ONCE <= count; i += HALVES_AT_ONCE) {
    const half_vector wide = *reinterpret_cast<const half_vector*>(from + i);
    // The zero rounds to nearest, ties to even.
    asm("vcvtps2ph $0, %1, %0" : "=m"(*reinterpret_cast<half_memory*>(to + i)) : "v"(wide));
  }
#endif
  for (; i < count; ++i) to[i].bits = f16::narrow(from[i]);
}

}  // namespace choreo
