// Functions of SLEEF, which torch brings along, as functions that compilers vectorise.
//
// Each is declared with OpenMP's `declare simd`: a loop that calls choreo_sin_f32 becomes one that calls the
// variant for its vectors, whose name the vector ABI of the processor gives (_ZGVdN8v_choreo_sin_f32 takes eight
// floats). The variants below hand their vector to SLEEF. A single number is the first of a vector, so that a
// result does not depend on the position of an element.
#pragma once

// Clang does not vectorise calls of such functions.
#if defined(CHOREO_SLEEF) && !defined(__clang__) && defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#define CHOREO_VECTORS_OF_SLEEF
#define CHOREO_OWN extern "C" __attribute__((weak, visibility("hidden")))

namespace choreo::vectors {

inline __m256 wide(__m128 x) { return _mm256_insertf128_ps(_mm256_setzero_ps(), x, 0); }
inline __m256d wide(__m128d x) { return _mm256_insertf128_pd(_mm256_setzero_pd(), x, 0); }
inline __m128 narrow(__m256 x) { return _mm256_castps256_ps128(x); }
inline __m128d narrow(__m256d x) { return _mm256_castpd256_pd128(x); }
inline __m256 all(float x) { return _mm256_set1_ps(x); }
inline __m256d all(double x) { return _mm256_set1_pd(x); }
inline float first(__m256 x) { return _mm256_cvtss_f32(x); }
inline double first(__m256d x) { return _mm256_cvtsd_f64(x); }

}  // namespace choreo::vectors

#if defined(__AVX512F__)
#define CHOREO_WIDEST_1(name, sleef, type, vector, lanes)            \
  extern "C" vector sleef(vector);                                   \
  CHOREO_OWN vector _ZGVeN##lanes##v_choreo_##name##_##type(vector x) { return sleef(x); }
#define CHOREO_WIDEST_2(name, sleef, type, vector, lanes)            \
  extern "C" vector sleef(vector, vector);                           \
  CHOREO_OWN vector _ZGVeN##lanes##vv_choreo_##name##_##type(vector x, vector y) { return sleef(x, y); }
#else
#define CHOREO_WIDEST_1(name, sleef, type, vector, lanes)
#define CHOREO_WIDEST_2(name, sleef, type, vector, lanes)
#endif

#define CHOREO_VARIANTS_1(name, sleef, type, scalar, half, full, less, more)                                     \
  extern "C" full sleef(full);                                                                                   \
  CHOREO_OWN half _ZGVbN##less##v_choreo_##name##_##type(half x) {                                               \
    return choreo::vectors::narrow(sleef(choreo::vectors::wide(x)));                                             \
  }                                                                                                              \
  CHOREO_OWN full _ZGVcN##more##v_choreo_##name##_##type(full x) { return sleef(x); }                            \
  CHOREO_OWN full _ZGVdN##more##v_choreo_##name##_##type(full x) { return sleef(x); }                            \
  CHOREO_OWN scalar choreo_##name##_##type##_one(scalar x) __asm__("choreo_" #name "_" #type);                   \
  CHOREO_OWN scalar choreo_##name##_##type##_one(scalar x) {                                                     \
    return choreo::vectors::first(sleef(choreo::vectors::all(x)));                                               \
  }
#define CHOREO_VARIANTS_2(name, sleef, type, scalar, half, full, less, more)                                     \
  extern "C" full sleef(full, full);                                                                             \
  CHOREO_OWN half _ZGVbN##less##vv_choreo_##name##_##type(half x, half y) {                                      \
    return choreo::vectors::narrow(sleef(choreo::vectors::wide(x), choreo::vectors::wide(y)));                   \
  }                                                                                                              \
  CHOREO_OWN full _ZGVcN##more##vv_choreo_##name##_##type(full x, full y) { return sleef(x, y); }                \
  CHOREO_OWN full _ZGVdN##more##vv_choreo_##name##_##type(full x, full y) { return sleef(x, y); }                \
  CHOREO_OWN scalar choreo_##name##_##type##_one(scalar x, scalar y) __asm__("choreo_" #name "_" #type);         \
  CHOREO_OWN scalar choreo_##name##_##type##_one(scalar x, scalar y) {                                           \
    return choreo::vectors::first(sleef(choreo::vectors::all(x), choreo::vectors::all(y)));                      \
  }
// SLEEF's names: sin, then f or d, the number of lanes, and, where it rounds, the error in tenths of a unit in the last place.
#define CHOREO_SLEEF_1(name, ulp)                                                                        \
  CHOREO_VARIANTS_1(name, Sleef_##name##f8##ulp, f32, float, __m128, __m256, 4, 8)                      \
  CHOREO_VARIANTS_1(name, Sleef_##name##d4##ulp, f64, double, __m128d, __m256d, 2, 4)                   \
  CHOREO_WIDEST_1(name, Sleef_##name##f16##ulp, f32, __m512, 16)                                        \
  CHOREO_WIDEST_1(name, Sleef_##name##d8##ulp, f64, __m512d, 8)
#define CHOREO_SLEEF_2(name, ulp)                                                                        \
  CHOREO_VARIANTS_2(name, Sleef_##name##f8##ulp, f32, float, __m128, __m256, 4, 8)                      \
  CHOREO_VARIANTS_2(name, Sleef_##name##d4##ulp, f64, double, __m128d, __m256d, 2, 4)                   \
  CHOREO_WIDEST_2(name, Sleef_##name##f16##ulp, f32, __m512, 16)                                        \
  CHOREO_WIDEST_2(name, Sleef_##name##d8##ulp, f64, __m512d, 8)

#elif defined(CHOREO_SLEEF) && !defined(__clang__) && defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>

#define CHOREO_VECTORS_OF_SLEEF
#define CHOREO_OWN extern "C" __attribute__((weak, visibility("hidden")))
#define CHOREO_VARIANT extern "C" __attribute__((weak, visibility("hidden"), aarch64_vector_pcs))

#define CHOREO_SLEEF_1(name, ulp)                                                                                    \
  extern "C" float32x4_t Sleef_##name##f4##ulp(float32x4_t);                                                        \
  extern "C" float64x2_t Sleef_##name##d2##ulp(float64x2_t);                                                        \
  CHOREO_VARIANT float32x4_t _ZGVnN4v_choreo_##name##_f32(float32x4_t x) { return Sleef_##name##f4##ulp(x); }       \
  CHOREO_VARIANT float32x2_t _ZGVnN2v_choreo_##name##_f32(float32x2_t x) {                                           \
    return vget_low_f32(Sleef_##name##f4##ulp(vcombine_f32(x, x)));                                                 \
  }                                                                                                                  \
  CHOREO_VARIANT float64x2_t _ZGVnN2v_choreo_##name##_f64(float64x2_t x) { return Sleef_##name##d2##ulp(x); }       \
  CHOREO_OWN float choreo_##name##_f32_one(float x) __asm__("choreo_" #name "_f32");                                 \
  CHOREO_OWN float choreo_##name##_f32_one(float x) {                                                                \
    return vgetq_lane_f32(Sleef_##name##f4##ulp(vdupq_n_f32(x)), 0);                                                \
  }                                                                                                                  \
  CHOREO_OWN double choreo_##name##_f64_one(double x) __asm__("choreo_" #name "_f64");                               \
  CHOREO_OWN double choreo_##name##_f64_one(double x) {                                                              \
    return vgetq_lane_f64(Sleef_##name##d2##ulp(vdupq_n_f64(x)), 0);                                                \
  }
#define CHOREO_SLEEF_2(name, ulp)                                                                                    \
  extern "C" float32x4_t Sleef_##name##f4##ulp(float32x4_t, float32x4_t);                                           \
  extern "C" float64x2_t Sleef_##name##d2##ulp(float64x2_t, float64x2_t);                                           \
  CHOREO_VARIANT float32x4_t _ZGVnN4vv_choreo_##name##_f32(float32x4_t x, float32x4_t y) {                           \
    return Sleef_##name##f4##ulp(x, y);                                                                             \
  }                                                                                                                  \
  CHOREO_VARIANT float32x2_t _ZGVnN2vv_choreo_##name##_f32(float32x2_t x, float32x2_t y) {                           \
    return vget_low_f32(Sleef_##name##f4##ulp(vcombine_f32(x, x), vcombine_f32(y, y)));                             \
  }                                                                                                                  \
  CHOREO_VARIANT float64x2_t _ZGVnN2vv_choreo_##name##_f64(float64x2_t x, float64x2_t y) {                           \
    return Sleef_##name##d2##ulp(x, y);                                                                             \
  }                                                                                                                  \
  CHOREO_OWN float choreo_##name##_f32_one(float x, float y) __asm__("choreo_" #name "_f32");                        \
  CHOREO_OWN float choreo_##name##_f32_one(float x, float y) {                                                       \
    return vgetq_lane_f32(Sleef_##name##f4##ulp(vdupq_n_f32(x), vdupq_n_f32(y)), 0);                                \
  }                                                                                                                  \
  CHOREO_OWN double choreo_##name##_f64_one(double x, double y) __asm__("choreo_" #name "_f64");                     \
  CHOREO_OWN double choreo_##name##_f64_one(double x, double y) {                                                    \
    return vgetq_lane_f64(Sleef_##name##d2##ulp(vdupq_n_f64(x), vdupq_n_f64(y)), 0);                                \
  }
#endif

#if defined(CHOREO_VECTORS_OF_SLEEF)
// GCC moves a call into the one branch that needs its result, and then sees a loop with branches.
#pragma GCC optimize("no-tree-sink")

#define CHOREO_ONE(name, ulp)                                                                    \
  extern "C" {                                                                                   \
  _Pragma("omp declare simd notinbranch") float choreo_##name##_f32(float x) __attribute__((const, nothrow));    \
  _Pragma("omp declare simd notinbranch") double choreo_##name##_f64(double x) __attribute__((const, nothrow));  \
  }                                                                                              \
  CHOREO_SLEEF_1(name, ulp)                                                                      \
  namespace choreo {                                                                             \
  inline float name##_(float x) { return choreo_##name##_f32(x); }                               \
  inline double name##_(double x) { return choreo_##name##_f64(x); }                             \
  }
#define CHOREO_TWO(name, ulp)                                                                    \
  extern "C" {                                                                                   \
  _Pragma("omp declare simd notinbranch") float choreo_##name##_f32(float x, float y) __attribute__((const, nothrow));     \
  _Pragma("omp declare simd notinbranch") double choreo_##name##_f64(double x, double y) __attribute__((const, nothrow));  \
  }                                                                                              \
  CHOREO_SLEEF_2(name, ulp)

CHOREO_ONE(sin, _u10) CHOREO_ONE(cos, _u10) CHOREO_ONE(tan, _u10)
CHOREO_ONE(asin, _u10) CHOREO_ONE(acos, _u10) CHOREO_ONE(atan, _u10)
CHOREO_ONE(sinh, _u10) CHOREO_ONE(cosh, _u10)
CHOREO_ONE(atanh, _u10)  // asinh and acosh of large numbers are infinite there
CHOREO_ONE(exp2, _u10) CHOREO_ONE(expm1, _u10)
CHOREO_ONE(log2, _u10) CHOREO_ONE(log10, _u10) CHOREO_ONE(log1p, _u10)
CHOREO_ONE(erfc, _u15) CHOREO_ONE(lgamma, _u10)
CHOREO_TWO(pow, _u10) CHOREO_TWO(atan2, _u10) CHOREO_TWO(fmod, )

#undef CHOREO_ONE
#undef CHOREO_TWO
#endif
