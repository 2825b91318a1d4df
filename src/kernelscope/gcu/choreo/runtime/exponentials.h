// Functions near the exponential and the logarithm, in single precision and without branches: any compiler makes
// vector code of loops over them. Errors are below 2 units in the last place; tests/gcu measures them.
#pragma once

#include <cstdint>
#include <limits>

#include "element_types.h"

namespace choreo {

inline float inf_() { return std::numeric_limits<float>::infinity(); }
inline float nan_() { return std::numeric_limits<float>::quiet_NaN(); }

// As integers, where each is one instruction and no condition that compilers would join with others. Limits are
// above 0 and below 0. NaN becomes a limit; the callers put it back.
inline float at_most(float x, float limit) {
  const int32_t a = bits_as<int32_t>(x), b = bits_as<int32_t>(limit);
  return bits_as<float>(a < b ? a : b);
}
inline float at_least(float x, float limit) {
  const uint32_t a = bits_as<uint32_t>(x), b = bits_as<uint32_t>(limit);
  return bits_as<float>(a < b ? a : b);
}

// exp(r) - 1 - r by r², for r within ±0.35. In pairs, because a chain of dependent steps would wait for itself.
inline float exp_rest(float r) {
  const float r2 = r * r, r4 = r2 * r2;
  const float p0 = r * 1.6666665459e-1f + 5.0000001201e-1f;
  const float p2 = r * 8.3334519073e-3f + 4.1665795894e-2f;
  const float p4 = r * 1.9875691500e-4f + 1.3981999507e-3f;
  return r4 * p4 + (r2 * p2 + p0);
}
// x = n·log(2) + r, for x within ±150.
struct power_of_two {
  float n, r;
  uint32_t k;  // n as an integer
};
inline power_of_two without_powers(float x) {
  // Adding 1.5·2²³ leaves the nearest integer in the lowest bits.
  const float shifted = x * 1.44269504088896341f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  float r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  return {n, r, bits_as<uint32_t>(shifted) - 0x4b400000u};
}
// p·2^k: two factors, because 2^128 and 2^-150 are no floats.
inline float times_power(float p, uint32_t k) {
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(k) >> 1);
  return p * bits_as<float>((half + 127u) << 23) * bits_as<float>((k - half + 127u) << 23);
}

inline float exp_(float given) {
  const power_of_two x = without_powers(at_least(at_most(given, 89.0f), -104.0f));
  const float y = times_power(x.r * x.r * exp_rest(x.r) + x.r + 1.0f, x.k);
  return given == given ? y : given;
}

// Of what is within ±87, with a result that is neither subnormal nor infinite.
inline float exp_of_near(float given) {
  const power_of_two x = without_powers(given);
  return (x.r * x.r * exp_rest(x.r) + x.r + 1.0f) * bits_as<float>((x.k + 127u) << 23);
}

inline float exp2_(float given) {
  const float x = at_least(at_most(given, 129.0f), -151.0f);
  const float shifted = x + 12582912.0f, r = (x - (shifted - 12582912.0f)) * 0.693147180559945f;
  const float y = times_power(r * r * exp_rest(r) + r + 1.0f, bits_as<uint32_t>(shifted) - 0x4b400000u);
  return given == given ? y : given;
}

inline float expm1_(float given) {
  const power_of_two x = without_powers(at_least(at_most(given, 89.0f), -20.0f));
  const float part = x.r * x.r * exp_rest(x.r) + x.r;  // exp(r) - 1
  const float half = bits_as<float>((x.k + 126u) << 23);  // of 2^n, which may be 2^128
  const float y = (half * part + (half - 0.5f)) * 2.0f;
  const float large = given == given ? y : given;
  return __builtin_fabsf(given) < 2.98e-8f ? given : large;  // -0 and what is subnormal
}

// exp(|x|) / 2, up to where sinh and cosh overflow.
inline float half_exp(float magnitude) {
  const power_of_two x = without_powers(at_most(magnitude, 90.0f));
  return times_power(x.r * x.r * exp_rest(x.r) + x.r + 1.0f, x.k - 1u);
}
inline float cosh_(float given) {
  const float e = half_exp(__builtin_fabsf(given));
  const float y = e + 0.25f / e;
  return given == given ? y : given;
}
inline float sinh_(float given) {
  const float a = __builtin_fabsf(given), e = half_exp(a), z = given * given;
  float p = 2.75573192e-6f;
  p = p * z + 1.98412698e-4f;
  p = p * z + 8.33333333e-3f;
  p = p * z + 1.66666667e-1f;
  const float near = given * z * p + given;
  const float far = __builtin_copysignf(e - 0.25f / e, given);
  const float y = a < 1.0f ? near : far;
  return given == given ? y : given;
}

// log(1 + x) for x of which 1 + x is positive and finite; what is not, the callers put back.
inline float log1p_core(float x) {
  const float u = x + 1.0f;
  // 1 + x = 2^k·(1 + m), and m is computed from x, which has digits that 1 + x has lost.
  const uint32_t power = (bits_as<uint32_t>(u) - 0x3f400000u) & 0xff800000u;
  const float scale = bits_as<float>(0x40800000u - power);  // 4·2^-k, because 2^-128 is subnormal
  const float m = bits_as<float>(bits_as<uint32_t>(x) - power) + (0.25f * scale - 1.0f);
  const float k = static_cast<float>(static_cast<int32_t>(power)) * 1.1920929e-7f;
  const float s = m * m;
  float r = -4.54559326e-2f, t = 1.05529785e-1f;
  r = r * s - 1.32279396e-1f;
  t = t * s + 1.44911438e-1f;
  r = r * s - 1.66416913e-1f;
  t = t * s + 1.99887797e-1f;
  r = r * s - 2.50002742e-1f;
  r = t * m + r;
  r = r * m + 3.33335280e-1f;
  r = r * m - 4.99999970e-1f;
  r = r * s + m;
  return k * 0.693147182f + r;
}
inline float log1p_(float given) {
  const float y = log1p_core(given);
  const float inside = given < inf_() ? y : given;  // and NaN
  const float tiny = __builtin_fabsf(given) < 2.98e-8f ? given : inside;  // -0 and what is subnormal
  const float low = given == -1.0f ? -inf_() : tiny;
  return given < -1.0f ? nan_() : low;
}
inline float atanh_(float given) {
  const float a = __builtin_fabsf(given), z = given * given;
  float p = 1.76690923e-1f;
  p = p * z + 5.13584231e-2f;
  p = p * z + 1.18237254e-1f;
  p = p * z + 1.42227626e-1f;
  p = p * z + 2.00025183e-1f;
  p = p * z + 3.33333001e-1f;
  const float near = given * z * p + given;
  const float far = __builtin_copysignf(0.5f * log1p_core(2.0f * a / (1.0f - a)), given);
  const float y = a < 0.5f ? near : far;
  const float one = a == 1.0f ? __builtin_copysignf(inf_(), given) : y;
  return a > 1.0f || given != given ? nan_() : one;
}
// log(1 + x), where x may be so large that its square is infinite: of `large`, the logarithm of 2x.
inline float log1p_of(float x, float large) {
  const bool beyond = large > 1e18f;
  const float y = log1p_core(beyond ? large : x);
  return beyond ? y + 0.693147182f : y;
}
inline float asinh_(float given) {
  const float a = __builtin_fabsf(given), z = given * given;
  float p = -1.32375034e-2f;
  p = p * z + 2.81691093e-2f;
  p = p * z - 4.43845135e-2f;
  p = p * z + 7.49865211e-2f;
  p = p * z - 1.66666436e-1f;
  const float near = given * z * p + given;
  const float far = log1p_of(a + z / (1.0f + __builtin_sqrtf(z + 1.0f)), a);
  const float y = __builtin_copysignf(a < 0.5f ? near : far, given);  // -0 stays -0
  return a < inf_() ? y : given;  // and NaN
}
inline float acosh_(float given) {
  const float d = given - 1.0f;
  float p = -4.13671983e-4f;
  p = p * d + 1.76056933e-3f;
  p = p * d - 5.54806419e-3f;
  p = p * d + 1.87466303e-2f;
  p = p * d - 8.33332179e-2f;
  const float root = __builtin_sqrtf(2.0f * d), near = root * d * p + root;
  const float far = log1p_of(d + __builtin_sqrtf(d * (given + 1.0f)), given);
  const float y = d < 0.5f ? near : far;
  const float inside = given < inf_() ? y : given;  // and NaN
  return given < 1.0f ? nan_() : inside;
}

}  // namespace choreo
