// Element types, and conversions between them.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "half_conversions.h"
// CHOREO_PORTABLE: use nothing that only some compilers and processors have.

namespace choreo {
// Names that host code may also use without `choreo::`.
inline namespace names {

using s8 = int8_t;
using u8 = uint8_t;
using s16 = int16_t;
using u16 = uint16_t;
using s32 = int32_t;
using u32 = uint32_t;
using s64 = int64_t;
using u64 = uint64_t;
using f32 = float;
using f64 = double;

}  // namespace names

template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
#if defined(__has_builtin) && !defined(CHOREO_PORTABLE)
#if __has_builtin(__builtin_bit_cast)  // g++ 11, clang 9
#define CHOREO_BIT_CAST
#endif
#endif
#if defined(CHOREO_BIT_CAST)
  return __builtin_bit_cast(To, from);
#else
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
#endif
}

// Without a branch: of several choices that depend on each other compilers make paths, and no vector code.
inline uint32_t chosen(bool first, uint32_t one, uint32_t other) {
  const uint32_t mask = 0u - static_cast<uint32_t>(first);
  return (one & mask) | (other & ~mask);
}

inline namespace names {

// IEEE half precision, rounded to nearest, ties to even.
struct f16 {
  uint16_t bits;
  f16() = default;
  f16(float x) : bits(narrow(x)) {}
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  f16(T x) : f16(static_cast<float>(x)) {}
  operator float() const { return widen(bits); }
  float toFloat() const { return widen(bits); }
#if defined(CHOREO_F16_INSTRUCTIONS)
  static uint16_t narrow(float x) { return static_cast<uint16_t>(choreo_f16_narrow(x)); }
  static float widen(uint16_t h) { return choreo_f16_widen(h); }
#else
  static uint16_t narrow(float x) {
    const uint32_t u = bits_as<uint32_t>(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    const uint32_t normal = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;
    // Becomes subnormal: adding 0.5 rounds at the right bit.
    const uint32_t small = bits_as<uint32_t>(bits_as<float>(a) + 0.5f) - 0x3f000000u;
    const uint32_t finite = chosen(a < 0x38800000u, small, normal);
    const uint32_t number = chosen(a >= 0x477ff000u, 0x7c00u, finite);
    const uint32_t quiet = 0x7e00u | ((a >> 13) & 0x3ffu);
    return static_cast<uint16_t>(sign | chosen(a > 0x7f800000u, quiet, number));
  }
  static float widen(uint16_t h) {
    const uint32_t sign = (h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
    const uint32_t small = bits_as<uint32_t>(static_cast<float>(static_cast<int32_t>(m)) * 0x1p-24f);
    const uint32_t normal = ((e + 112) << 23) | (m << 13), special = 0x7f800000u | (m << 13);
    const uint32_t finite = chosen(e == 0, small, normal);
    return bits_as<float>(sign | chosen(e == 31, special, finite));
  }
#endif
};

// The upper half of a float, rounded to nearest, ties to even.
struct bf16 {
  uint16_t bits;
  bf16() = default;
  bf16(float x) : bits(narrow(x)) {}
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  bf16(T x) : bf16(static_cast<float>(x)) {}
  operator float() const { return widen(bits); }
  float toFloat() const { return widen(bits); }
  static uint16_t narrow(float x) {
    const uint32_t u = bits_as<uint32_t>(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return static_cast<uint16_t>(x == x ? rounded : 0x7fc0u);
  }
  static float widen(uint16_t h) { return bits_as<float>(static_cast<uint32_t>(h) << 16); }
};
using half = f16;
using bfp16 = bf16;
// As CUDA calls them, for host code that was written beside it.
using __half = f16;
inline float __half2float(f16 x) { return f16::widen(x.bits); }
inline f16 __float2half(float x) { return f16(x); }
inline float f16_to_f32(f16 x) { return f16::widen(x.bits); }
inline f16 f32_to_f16(float x) { return f16(x); }
inline float bf16_to_f32(bf16 x) { return bf16::widen(x.bits); }
inline bf16 f32_to_bf16(float x) { return bf16(x); }

}  // namespace names

// A number in half precision as a float, and the assignment of one: no object in between, which would keep
// compilers from making vector code.
template <class T>
inline float rounded_f16(const T& x) {
  return f16::widen(f16::narrow(static_cast<float>(x)));
}
template <class T>
inline float rounded_bf16(const T& x) {
  return bf16::widen(bf16::narrow(static_cast<float>(x)));
}
template <class T, class Value>
inline void put(T& to, const Value& value) {
  if constexpr (std::is_class_v<T>)
    to.bits = T::narrow(static_cast<float>(value));
  else
    to = static_cast<T>(value);
}

#define CHOREO_CAST(name, type)                                   \
  template <class T>                                              \
  inline type cast_##name(const T& x) {                           \
    if constexpr (std::is_class_v<T>)                             \
      return static_cast<type>(static_cast<float>(x));            \
    else                                                          \
      return static_cast<type>(x);                                \
  }
template <class T>
inline u8 cast_u8(T x) {  // by way of a signed integer, as in torch: what is negative wraps on any machine
  if constexpr (std::is_class_v<T>)
    return static_cast<u8>(static_cast<s64>(static_cast<float>(x)));
  else
    return static_cast<u8>(static_cast<s64>(x));
}
CHOREO_CAST(s8, s8) CHOREO_CAST(s16, s16) CHOREO_CAST(u16, u16)
CHOREO_CAST(s32, s32) CHOREO_CAST(u32, u32) CHOREO_CAST(s64, s64) CHOREO_CAST(u64, u64)
CHOREO_CAST(f16, f16) CHOREO_CAST(bf16, bf16) CHOREO_CAST(f32, f32) CHOREO_CAST(f64, f64)
#undef CHOREO_CAST
template <class T>
inline u8 cast_bool(T x) {
  return static_cast<u8>(x != T(0) ? 1 : 0);
}
template <>
inline u8 cast_bool(f16 x) {
  return static_cast<u8>(static_cast<float>(x) != 0.0f);
}
template <>
inline u8 cast_bool(bf16 x) {
  return static_cast<u8>(static_cast<float>(x) != 0.0f);
}

}  // namespace choreo
