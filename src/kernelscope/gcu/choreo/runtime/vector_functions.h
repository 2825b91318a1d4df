// Functions of SLEEF, which torch brings along, as functions that compilers vectorise.
//
// Each is declared with OpenMP's `declare simd`: a loop that calls choreo_sin_f32 becomes one that calls the
// variant for its vectors, whose name the vector ABI of the processor gives (_ZGVdN8v_choreo_sin_f32 takes eight
// floats). The variants below hand their vector to SLEEF, and so does a single number, so that a result does not
// depend on the position of an element.
#pragma once

// Clang does not vectorise calls of such functions.
#if defined(CHOREO_SLEEF) && !defined(__clang__) && defined(__AVX2__) && defined(__FMA__)

#define CHOREO_VECTORS_OF_SLEEF
// A variant and SLEEF's function take and give the same registers, so it is a jump. What has fewer lanes, down to
// one number, goes by way of eight, of which the others do not matter.
#define CHOREO_JUMP(variant, first, sleef) \
  ".weak " variant "\n.hidden " variant "\n.type " variant ", @function\n" variant ":\n" first "jmp " sleef "@PLT\n"
#define CHOREO_JUMPS(v, first, name, type, less, more, most, narrow, wide) \
  asm(".pushsection .text\n" \
      CHOREO_JUMP("choreo_" #name "_" #type, first, "Sleef_" #name narrow) \
      CHOREO_JUMP("_ZGVbN" less v "_choreo_" #name "_" #type, first, "Sleef_" #name narrow) \
      CHOREO_JUMP("_ZGVcN" more v "_choreo_" #name "_" #type, "", "Sleef_" #name narrow) \
      CHOREO_JUMP("_ZGVdN" more v "_choreo_" #name "_" #type, "", "Sleef_" #name narrow) \
      CHOREO_JUMP("_ZGVeN" most v "_choreo_" #name "_" #type, "", "Sleef_" #name wide) \
      ".popsection\n");
// SLEEF's names: sin, then f or d, the number of lanes, and, where it rounds, the error in tenths of a unit in the
// last place.
#define CHOREO_SLEEF_BOTH(v, first, name, ulp) \
  CHOREO_JUMPS(v, first, name, f32, "4", "8", "16", "f8" #ulp, "f16" #ulp) \
  CHOREO_JUMPS(v, first, name, f64, "2", "4", "8", "d4" #ulp, "d8" #ulp)
#define CHOREO_SLEEF_1(name, ulp) CHOREO_SLEEF_BOTH("v", "vmovaps %xmm0, %xmm0\n", name, ulp)
#define CHOREO_SLEEF_2(name, ulp) CHOREO_SLEEF_BOTH("vv", "vmovaps %xmm0, %xmm0\nvmovaps %xmm1, %xmm1\n", name, ulp)

#elif defined(CHOREO_SLEEF) && !defined(__clang__) && defined(__aarch64__) && defined(__ARM_NEON)

#define CHOREO_VECTORS_OF_SLEEF
#define CHOREO_OWN extern "C" __attribute__((weak, visibility("hidden")))
#define CHOREO_VARIANT extern "C" __attribute__((weak, visibility("hidden"), aarch64_vector_pcs))

namespace choreo::vectors {

using f32x2 = float __attribute__((vector_size(8)));
using f32x4 = float __attribute__((vector_size(16)));
using f64x2 = double __attribute__((vector_size(16)));
inline f32x4 twice(f32x2 x) { return f32x4{x[0], x[1], x[0], x[1]}; }
inline f32x2 low(f32x4 x) { return f32x2{x[0], x[1]}; }

}  // namespace choreo::vectors

// The convention of these variants keeps more registers than that of SLEEF's functions.
#define CHOREO_SLEEF_1(name, ulp) \
  extern "C" choreo::vectors::f32x4 Sleef_##name##f4##ulp(choreo::vectors::f32x4); \
  extern "C" choreo::vectors::f64x2 Sleef_##name##d2##ulp(choreo::vectors::f64x2); \
  CHOREO_VARIANT choreo::vectors::f32x4 _ZGVnN4v_choreo_##name##_f32(choreo::vectors::f32x4 x) { return Sleef_##name##f4##ulp(x); } \
  CHOREO_VARIANT choreo::vectors::f32x2 _ZGVnN2v_choreo_##name##_f32(choreo::vectors::f32x2 x) { \
    return choreo::vectors::low(Sleef_##name##f4##ulp(choreo::vectors::twice(x))); \
  } \
  CHOREO_VARIANT choreo::vectors::f64x2 _ZGVnN2v_choreo_##name##_f64(choreo::vectors::f64x2 x) { return Sleef_##name##d2##ulp(x); } \
  CHOREO_OWN float choreo_##name##_f32_one(float x) __asm__("choreo_" #name "_f32"); \
  CHOREO_OWN float choreo_##name##_f32_one(float x) { \
    return Sleef_##name##f4##ulp(choreo::vectors::f32x4{x, x, x, x})[0]; \
  } \
  CHOREO_OWN double choreo_##name##_f64_one(double x) __asm__("choreo_" #name "_f64"); \
  CHOREO_OWN double choreo_##name##_f64_one(double x) { \
    return Sleef_##name##d2##ulp(choreo::vectors::f64x2{x, x})[0]; \
  }
#define CHOREO_SLEEF_2(name, ulp) \
  extern "C" choreo::vectors::f32x4 Sleef_##name##f4##ulp(choreo::vectors::f32x4, choreo::vectors::f32x4); \
  extern "C" choreo::vectors::f64x2 Sleef_##name##d2##ulp(choreo::vectors::f64x2, choreo::vectors::f64x2); \
  CHOREO_VARIANT choreo::vectors::f32x4 _ZGVnN4vv_choreo_##name##_f32(choreo::vectors::f32x4 x, choreo::vectors::f32x4 y) { \
    return Sleef_##name##f4##ulp(x, y); \
  } \
  CHOREO_VARIANT choreo::vectors::f32x2 _ZGVnN2vv_choreo_##name##_f32(choreo::vectors::f32x2 x, choreo::vectors::f32x2 y) { \
    return choreo::vectors::low(Sleef_##name##f4##ulp(choreo::vectors::twice(x), choreo::vectors::twice(y))); \
  } \
  CHOREO_VARIANT choreo::vectors::f64x2 _ZGVnN2vv_choreo_##name##_f64(choreo::vectors::f64x2 x, choreo::vectors::f64x2 y) { \
    return Sleef_##name##d2##ulp(x, y); \
  } \
  CHOREO_OWN float choreo_##name##_f32_one(float x, float y) __asm__("choreo_" #name "_f32"); \
  CHOREO_OWN float choreo_##name##_f32_one(float x, float y) { \
    return Sleef_##name##f4##ulp(choreo::vectors::f32x4{x, x, x, x}, choreo::vectors::f32x4{y, y, y, y})[0]; \
  } \
  CHOREO_OWN double choreo_##name##_f64_one(double x, double y) __asm__("choreo_" #name "_f64"); \
  CHOREO_OWN double choreo_##name##_f64_one(double x, double y) { \
    return Sleef_##name##d2##ulp(choreo::vectors::f64x2{x, x}, choreo::vectors::f64x2{y, y})[0]; \
  }
#endif

#if defined(CHOREO_MKL) && !defined(CHOREO_VECTORS_OF_SLEEF)
#undef CHOREO_MKL  // what it lacks would be the C library's, one number after another
#endif

#if defined(CHOREO_VECTORS_OF_SLEEF)
// GCC moves a call into the one branch that needs its result, and then sees a loop with branches.
#pragma GCC optimize("no-tree-sink")

#define CHOREO_DOUBLE(name, ulp) \
  extern "C" { \
  _Pragma("omp declare simd notinbranch") float choreo_##name##_f32(float x) __attribute__((const, nothrow)); \
  _Pragma("omp declare simd notinbranch") double choreo_##name##_f64(double x) __attribute__((const, nothrow)); \
  } \
  CHOREO_SLEEF_1(name, ulp) \
  namespace choreo { \
  inline double name##_(double x) { return choreo_##name##_f64(x); } \
  }
#define CHOREO_ONE(name, ulp) \
  CHOREO_DOUBLE(name, ulp) \
  namespace choreo { \
  inline float name##_(float x) { return choreo_##name##_f32(x); } \
  }
#if defined(CHOREO_MKL)
#define CHOREO_FOR_BLOCKS CHOREO_DOUBLE
#else
#define CHOREO_FOR_BLOCKS CHOREO_ONE
#endif
#define CHOREO_TWO(name, ulp) \
  extern "C" { \
  _Pragma("omp declare simd notinbranch") float choreo_##name##_f32(float x, float y) __attribute__((const, nothrow)); \
  _Pragma("omp declare simd notinbranch") double choreo_##name##_f64(double x, double y) __attribute__((const, nothrow)); \
  } \
  CHOREO_SLEEF_2(name, ulp)

// In single precision these are MKL's where torch has it: see block_functions.h.
CHOREO_FOR_BLOCKS(sin, _u10) CHOREO_FOR_BLOCKS(cos, _u10) CHOREO_FOR_BLOCKS(tan, _u10)
CHOREO_FOR_BLOCKS(asin, _u10) CHOREO_FOR_BLOCKS(acos, _u10) CHOREO_FOR_BLOCKS(atan, _u10)
CHOREO_FOR_BLOCKS(log2, _u10) CHOREO_FOR_BLOCKS(log10, _u10) CHOREO_FOR_BLOCKS(erfc, _u15)
CHOREO_ONE(lgamma, _u10)
// In single precision these are in exponentials.h; so are asinh and acosh, which in double precision are the C
// library's, because SLEEF's are infinite too early.
CHOREO_DOUBLE(sinh, _u10) CHOREO_DOUBLE(cosh, _u10) CHOREO_DOUBLE(atanh, _u10)
CHOREO_DOUBLE(exp2, _u10) CHOREO_DOUBLE(expm1, _u10) CHOREO_DOUBLE(log1p, _u10)
CHOREO_TWO(pow, _u10) CHOREO_TWO(atan2, _u10) CHOREO_TWO(fmod, ) CHOREO_TWO(hypot, _u05)

#undef CHOREO_ONE
#undef CHOREO_DOUBLE
#undef CHOREO_FOR_BLOCKS
#undef CHOREO_TWO
#endif
