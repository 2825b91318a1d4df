// Mathematics that compilers can vectorise.
//
// In single precision, exp and its relatives (exponentials.h), log, tanh and erf are written without branches, so
// that loops over them become vector code with any compiler and any C library. The others are SLEEF's where a program is linked with torch, and
// the C library's elsewhere. Where that torch has MKL, some are MKL's in single precision (block_functions.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "element_types.h"
#include "exponentials.h"
#include "failures.h"
#include "vector_functions.h"

#define CHOREO_VECTOR_MATHEMATICS  // functions below become vector code

namespace choreo {

template <class T>
inline T nan_of(T x) {
  return std::is_floating_point_v<T> ? std::numeric_limits<T>::quiet_NaN() : x;
}

inline float log_(float given) {
  const bool tiny = given < 1.17549435e-38f;
  const float x = tiny ? given * 8388608.0f : given;
  const uint32_t u = bits_as<uint32_t>(x) - 0x3f3504f3u;  // so that the mantissa lies around 1
  const float e = static_cast<float>(static_cast<int32_t>(u) >> 23) - (tiny ? 23.0f : 0.0f);
  const float m = bits_as<float>((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  const float z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  float y = p * m * z;
  y = y - 2.12194440e-4f * e;
  y = y - 0.5f * z;
  y = m + y + 0.693359375f * e;
  y = given == inf_() ? given : y;
  y = given == 0.0f ? -inf_() : y;
  return given < 0.0f || given != given ? nan_() : y;
}

#if defined(CHOREO_MKL)
// As torch calls it: the most accurate, denormal numbers kept, and no report of what is out of range.
constexpr long long AS_EAGER = 0x2 | 0x140000 | 0x100;
#define CHOREO_ONE_OF_MKL(name, mkl) \
  extern "C" void mkl(int, const float*, float*, long long); \
  inline float name##_(float x) { \
    mkl(1, &x, &x, AS_EAGER); \
    return x; \
  }
CHOREO_ONE_OF_MKL(sin, vmsSin) CHOREO_ONE_OF_MKL(cos, vmsCos) CHOREO_ONE_OF_MKL(tan, vmsTan)
CHOREO_ONE_OF_MKL(asin, vmsAsin) CHOREO_ONE_OF_MKL(acos, vmsAcos) CHOREO_ONE_OF_MKL(atan, vmsAtan)
CHOREO_ONE_OF_MKL(log2, vmsLog2) CHOREO_ONE_OF_MKL(log10, vmsLog10)
CHOREO_ONE_OF_MKL(tanh, vmsTanh) CHOREO_ONE_OF_MKL(erfc, vmsErfc)
#undef CHOREO_ONE_OF_MKL
extern "C" void vmsExp(int, const float*, float*, long long);
extern "C" void vmsLn(int, const float*, float*, long long);
#else
inline float tanh_(float x) {
  const float a = __builtin_fabsf(x), z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = __builtin_copysignf(p * z * x + x, x);  // -0 stays -0
  const float far = __builtin_copysignf(1.0f - 2.0f / (exp_(2.0f * a) + 1.0f), x);
  return a < 0.625f ? near : x != x ? x : far;
}
#endif

inline float erf_(float given) {
  const float t = at_most(__builtin_fabsf(given), 4.0f), z = t * t;
  // In pairs, because a chain of dependent steps would wait for itself.
  const float z2 = z * z, n0 = z * -3.76124686e-1f + 1.28379146e-1f, n2 = z * -2.67570351e-2f + 1.12815525e-1f;
  const float n4 = z * -5.91941845e-4f + 4.9791305e-3f;
  const float near = t * (z2 * (z2 * n4 + n2) + n0) + t;
  // The logarithm of 1 - erf(t), plus t.
  float p = 1.93900685e-4f;
  p = p * t - 3.02316325e-3f;
  p = p * t + 2.21466448e-2f;
  p = p * t - 1.03764309e-1f;
  p = p * t - 6.37373788e-1f;
  p = p * t - 1.27561287e-1f;
  p = p * t - 2.23501614e-4f;
  const float far = 1.0f - exp_of_near(p - t);
  const float y = __builtin_copysignf(t < 0.9375f ? near : far, given);
  return given == given ? y : given;
}

inline double exp_(double x) { return std::exp(x); }
inline double log_(double x) { return std::log(x); }
inline double tanh_(double x) { return std::tanh(x); }
inline double erf_(double x) { return std::erf(x); }

#define CHOREO_MATH(name, call)                      \
  inline float name##_(float x) { return call(x); }  \
  inline double name##_(double x) { return call(x); }
#if !defined(CHOREO_VECTORS_OF_SLEEF)
CHOREO_MATH(log2, std::log2) CHOREO_MATH(log10, std::log10)
CHOREO_MATH(sin, std::sin) CHOREO_MATH(cos, std::cos) CHOREO_MATH(tan, std::tan)
CHOREO_MATH(asin, std::asin) CHOREO_MATH(acos, std::acos) CHOREO_MATH(atan, std::atan)
CHOREO_MATH(erfc, std::erfc) CHOREO_MATH(lgamma, std::lgamma)
inline double exp2_(double x) { return std::exp2(x); }
inline double expm1_(double x) { return std::expm1(x); }
inline double log1p_(double x) { return std::log1p(x); }
inline double sinh_(double x) { return std::sinh(x); }
inline double cosh_(double x) { return std::cosh(x); }
inline double atanh_(double x) { return std::atanh(x); }
#endif
inline double asinh_(double x) { return std::asinh(x); }
inline double acosh_(double x) { return std::acosh(x); }
CHOREO_MATH(floor, std::floor) CHOREO_MATH(ceil, std::ceil) CHOREO_MATH(trunc, std::trunc)
CHOREO_MATH(round, std::rint) CHOREO_MATH(sqrt, std::sqrt)
#undef CHOREO_MATH
inline float rsqrt_(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt_(double x) { return 1.0 / std::sqrt(x); }
inline float sigmoid_(float x) { return 1.0f / (1.0f + exp_(-x)); }
inline double sigmoid_(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// x·Φ(x) with one exponential: Φ(-|x|) = 2^(p(|x|) - 1). Below -6 it is 0, as where eager adds erf to 1.
inline float gelu_(float x) {
  const float a = __builtin_fabsf(x);
  float p = 2.13711473e-7f;
  p = p * a - 4.94585356e-6f;
  p = p * a + 4.5931436e-5f;
  p = p * a - 1.88054153e-4f;
  p = p * a - 1.66165191e-4f;
  p = p * a + 7.12500466e-3f;
  p = p * a - 5.2546598e-2f;
  p = p * a - 4.59191144e-1f;
  p = p * a - 1.15110695f;
  p = p * a;
  const float shifted = p + 12582912.0f, r = p - (shifted - 12582912.0f);  // the nearest integer, and the rest
  float y = 1.5353362e-4f;
  y = y * r + 1.3398875e-3f;
  y = y * r + 9.61843692e-3f;
  y = y * r + 5.55033237e-2f;
  y = y * r + 2.40226477e-1f;
  y = y * r + 6.93147182e-1f;
  y = y * r + 1.0f;
  const float power = bits_as<float>((bits_as<uint32_t>(shifted) - 0x4b400000u + 126u) << 23);
  const float tail = a > 6.0f ? 0.0f : y * power;
  return x * (x < 0.0f ? tail : 1.0f - tail);
}
inline double gelu_(double x) { return 0.5 * x * (1.0 + std::erf(x * 0.70710678118654752)); }
template <class T>
inline T softplus_(T x) {
  const T near = log1p_(exp_(x));  // in any case, so that loops become vector code
  return x > T(20) ? x : near;
}

template <class T>
inline int isfinite_(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fabs(x) <= std::numeric_limits<T>::max();
  else
    return 1;
}
template <class A, class B>
inline auto quotient(A a, B b, const char* message) {
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
    check(b != 0, message);
    if (b == 0) return decltype(a / b)(0);
    if (std::is_signed_v<B> && b == static_cast<B>(-1)) return static_cast<decltype(a / b)>(0 - a);  // also of the lowest
  }
  return a / b;
}
template <class A, class B>
inline auto remainder(A a, B b, const char* message) {
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
    check(b != 0, message);
    if (b == 0 || (std::is_signed_v<B> && b == static_cast<B>(-1))) return decltype(a % b)(0);
  }
  return a % b;
}
template <class A, class B>
inline auto cdiv_(A a, B b) {  // rounded up
  return (a + b - 1) / b;
}
template <class A, class B>
inline auto alignup_(A a, B b) {
  return (a + b - 1) / b * b;
}
template <class A, class B>
inline auto aligndown_(A a, B b) {
  return a / b * b;
}
// As in C: the other one when one is NaN.
template <class A, class B>
inline auto fmax_(A a, B b) {
  return std::fmax(static_cast<std::common_type_t<A, B, float>>(a), static_cast<std::common_type_t<A, B, float>>(b));
}
template <class A, class B>
inline auto fmin_(A a, B b) {
  return std::fmin(static_cast<std::common_type_t<A, B, float>>(a), static_cast<std::common_type_t<A, B, float>>(b));
}

template <class T>
inline T neg_(T x) {
  return static_cast<T>(-x);
}
template <class T>
inline T bitnot_(T x) {
  return static_cast<T>(~x);
}
template <class T>
inline T abs_(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fabs(x);
  else
    return static_cast<T>(x < T(0) ? T(0) - x : x);
}
template <class T>
inline T sign_(T x) {
  return static_cast<T>((x > T(0)) - (x < T(0)));
}
template <class T>
inline int isnan_(T x) {
  return x != x;
}
template <class T>
inline int isinf_(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fabs(x) == std::numeric_limits<T>::infinity();
  else
    return 0;
}
// As in torch, NaN wins; and of +0 and -0 the first, as in eager wherever that does not depend on the place.
// Where y is a constant, the second comparison vanishes.
template <class A, class B>
inline auto max_(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  const T larger = y > x ? y : x;
  return y != y ? y : larger;
}
template <class A, class B>
inline auto min_(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  const T smaller = y < x ? y : x;
  return y != y ? y : smaller;
}
template <class A, class B>
inline auto pow_(A a, B b) {
  using T = std::common_type_t<A, B, float>;
#if defined(CHOREO_VECTORS_OF_SLEEF)
  if constexpr (std::is_same_v<T, float>) return choreo_pow_f32(a, b);
  if constexpr (std::is_same_v<T, double>) return choreo_pow_f64(a, b);
#endif
  return std::pow(static_cast<T>(a), static_cast<T>(b));
}
template <class A, class B>
inline auto atan2_(A a, B b) {
  using T = std::common_type_t<A, B, float>;
#if defined(CHOREO_VECTORS_OF_SLEEF)
  if constexpr (std::is_same_v<T, float>) return choreo_atan2_f32(a, b);
  if constexpr (std::is_same_v<T, double>) return choreo_atan2_f64(a, b);
#endif
  return std::atan2(static_cast<T>(a), static_cast<T>(b));
}
template <class A, class B>
inline auto hypot_(A a, B b) {
  using T = std::common_type_t<A, B, float>;
#if defined(CHOREO_VECTORS_OF_SLEEF)
  if constexpr (std::is_same_v<T, float>) return choreo_hypot_f32(a, b);
  if constexpr (std::is_same_v<T, double>) return choreo_hypot_f64(a, b);
#endif
  return std::hypot(static_cast<T>(a), static_cast<T>(b));
}
template <class A, class B>
inline auto copysign_(A a, B b) {
  using T = std::common_type_t<A, B, float>;
  return std::copysign(static_cast<T>(a), static_cast<T>(b));
}
template <class A, class B>
inline auto fmod_(A a, B b) {
  using T = std::common_type_t<A, B, float>;
#if defined(CHOREO_VECTORS_OF_SLEEF)
  if constexpr (std::is_same_v<T, float>) return choreo_fmod_f32(a, b);
  if constexpr (std::is_same_v<T, double>) return choreo_fmod_f64(a, b);
#endif
  return std::fmod(static_cast<T>(a), static_cast<T>(b));
}
template <class A, class B>
inline auto remainder_(A a, B b) {  // the sign of the divisor
  using T = std::common_type_t<A, B, float>;
  const T y = static_cast<T>(b), rest = fmod_(static_cast<T>(a), y), other = rest + y;
  return (rest != 0) & ((y < 0) != (rest < 0)) ? other : rest;
}
template <class A, class B>
inline auto floordiv_(A a, B b) {  // without branches, so that loops become vector code
  using T = std::common_type_t<A, B, float>;
  const T x = static_cast<T>(a), y = static_cast<T>(b), exact = x / y, rest = fmod_(x, y);
  const T whole = (x - rest) / y;
  const T quotient = (rest != 0) & ((y < 0) != (rest < 0)) ? whole - 1 : whole;
  const T down = std::floor(quotient), up = down + 1;
  const T rounded = quotient - down > T(0.5) ? up : down;
  const T result = quotient == 0 ? std::copysign(T(0), exact) : rounded;
  return y == 0 ? exact : result;
}

}  // namespace choreo
