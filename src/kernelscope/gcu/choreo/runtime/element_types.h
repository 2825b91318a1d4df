// Element types, and conversions between them.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
// CHOREO_PORTABLE: use nothing that only some compilers and processors have.
#if defined(__F16C__) && !defined(CHOREO_PORTABLE)
#include <immintrin.h>
#endif

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
#if defined(__ARM_FP16_FORMAT_IEEE) && !defined(CHOREO_PORTABLE)
  static uint16_t narrow(float x) { return bits_as<uint16_t>(static_cast<__fp16>(x)); }
  static float widen(uint16_t h) { return static_cast<float>(bits_as<__fp16>(h)); }
#elif defined(__F16C__) && !defined(CHOREO_PORTABLE)
  static uint16_t narrow(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
  static float widen(uint16_t h) { return _cvtsh_ss(h); }
#else
  static uint16_t narrow(float x) {
    const uint32_t u = bits_as<uint32_t>(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
    if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
    if (a < 0x38800000u) {  // becomes subnormal: adding 0.5 rounds at the right bit
      const uint32_t m = bits_as<uint32_t>(bits_as<float>(a) + 0.5f) - 0x3f000000u;
      return static_cast<uint16_t>(sign | m);
    }
    return static_cast<uint16_t>(sign | ((a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13));
  }
  static float widen(uint16_t h) {
    const uint32_t sign = (h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
    if (e == 31) return bits_as<float>(sign | 0x7f800000u | (m << 13));
    if (e == 0) return bits_as<float>(sign | bits_as<uint32_t>(static_cast<float>(m) * 0x1p-24f));
    return bits_as<float>(sign | ((e + 112) << 23) | (m << 13));
  }
#endif
};

// The upper half of a float, rounded to nearest, ties to even.
struct bf16 {
  uint16_t bits;
  bf16() = default;
  bf16(float x) {
    const uint32_t u = bits_as<uint32_t>(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    bits = static_cast<uint16_t>(x != x ? 0x7fc0u : rounded);
  }
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  bf16(T x) : bf16(static_cast<float>(x)) {}
  operator float() const { return bits_as<float>(static_cast<uint32_t>(bits) << 16); }
  float toFloat() const { return static_cast<float>(*this); }
};
using half = f16;
using bfp16 = bf16;

}  // namespace names

#define CHOREO_CAST(name, type)                                   \
  template <class T>                                              \
  inline type cast_##name(T x) {                                  \
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
