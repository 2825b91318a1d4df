// What programs translated from Choreo need: element types, mathematics that compilers can vectorise, views,
// and memory. Everything is in this one header, so that a saved translation unit compiles on its own.
#pragma once

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#if defined(CHOREO_PRINT)  // costs as much time to compile as all the rest
#include <iostream>
#endif
// CHOREO_PORTABLE: use nothing that only some compilers and processors have.
#if defined(__F16C__) && !defined(CHOREO_PORTABLE)
#include <immintrin.h>
#endif

#define __co_device__ static inline

namespace choreo {

// -- element types ----------------------------------------------------------------------------------------

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

// IEEE half precision, rounded to nearest, ties to even.
struct f16 {
  uint16_t bits;
  f16() = default;
  explicit f16(float x) : bits(narrow(x)) {}
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  explicit f16(T x) : f16(static_cast<float>(x)) {}
  operator float() const { return widen(bits); }
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
  explicit bf16(float x) {
    const uint32_t u = bits_as<uint32_t>(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    bits = static_cast<uint16_t>(x != x ? 0x7fc0u : rounded);
  }
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  explicit bf16(T x) : bf16(static_cast<float>(x)) {}
  operator float() const { return bits_as<float>(static_cast<uint32_t>(bits) << 16); }
};

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

// -- mathematics ------------------------------------------------------------------------------------------
// In single precision, exp, log, tanh and erf are written without branches, so that loops over them become
// vector code with any compiler and any C library. The others, and double precision, are the C library's.

inline float inf_() { return std::numeric_limits<float>::infinity(); }
inline float nan_() { return std::numeric_limits<float>::quiet_NaN(); }
template <class T>
inline T nan_of(T x) {
  return std::is_floating_point_v<T> ? std::numeric_limits<T>::quiet_NaN() : x;
}

// One instruction each, whatever becomes of NaN, which the callers put back.
#if defined(__aarch64__) && !defined(CHOREO_PORTABLE)
inline float at_most(float x, float limit) { return __builtin_fminf(x, limit); }
inline float at_least(float x, float limit) { return __builtin_fmaxf(x, limit); }
#else
inline float at_most(float x, float limit) { return x < limit ? x : limit; }
inline float at_least(float x, float limit) { return x > limit ? x : limit; }
#endif

inline float exp_(float given) {
  const float x = at_least(at_most(given, 89.0f), -104.0f);
  // Adding 1.5·2²³ leaves the nearest integer in the lowest bits.
  const float shifted = x * 1.44269504088896341f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const uint32_t k = bits_as<uint32_t>(shifted) - 0x4b400000u;
  float r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  // In pairs, because a chain of dependent steps would wait for itself.
  const float r2 = r * r, r4 = r2 * r2;
  const float p0 = r * 1.6666665459e-1f + 5.0000001201e-1f;
  const float p2 = r * 8.3334519073e-3f + 4.1665795894e-2f;
  const float p4 = r * 1.9875691500e-4f + 1.3981999507e-3f;
  const float p = r2 * (r4 * p4 + (r2 * p2 + p0)) + r + 1.0f;
  // Two factors, because 2^128 and 2^-150 are no floats.
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(k) >> 1);
  const float y = p * bits_as<float>((half + 127u) << 23) * bits_as<float>((k - half + 127u) << 23);
  return given == given ? y : given;
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

inline float erf_(float given) {
  const float x = at_least(at_most(given, 4.0f), -4.0f);
  const float z = x * x;
  // In pairs, because a chain of dependent steps would wait for itself.
  const float z2 = z * z, z4 = z2 * z2;
  const float p0 = z * -2.95459980854025e-03f - 1.60960333262415e-02f;
  const float p2 = z * -5.69250639462346e-05f - 7.34990630326855e-04f;
  const float p4 = z2 * -2.72614225801306e-10f + (z * 2.77068142495902e-08f - 2.10102402082508e-06f);
  const float p = z4 * p4 + (z2 * p2 + p0);
  const float q0 = z * -7.37332916720468e-03f - 1.42647390514189e-02f;
  const float q2 = z * -2.13374055278905e-04f - 1.68282697438203e-03f;
  const float q = z4 * -1.45660718464996e-05f + (z2 * q2 + q0);
  const float y = x * p / q;
  return given == given ? y : given;
}

inline double exp_(double x) { return std::exp(x); }
inline double log_(double x) { return std::log(x); }
inline double tanh_(double x) { return std::tanh(x); }
inline double erf_(double x) { return std::erf(x); }

#define CHOREO_MATH(name, call)                      \
  inline float name##_(float x) { return call(x); }  \
  inline double name##_(double x) { return call(x); }
CHOREO_MATH(exp2, std::exp2) CHOREO_MATH(expm1, std::expm1) CHOREO_MATH(log2, std::log2)
CHOREO_MATH(log10, std::log10) CHOREO_MATH(log1p, std::log1p) CHOREO_MATH(sqrt, std::sqrt)
CHOREO_MATH(sin, std::sin) CHOREO_MATH(cos, std::cos) CHOREO_MATH(tan, std::tan)
CHOREO_MATH(asin, std::asin) CHOREO_MATH(acos, std::acos) CHOREO_MATH(atan, std::atan)
CHOREO_MATH(sinh, std::sinh) CHOREO_MATH(cosh, std::cosh) CHOREO_MATH(asinh, std::asinh)
CHOREO_MATH(acosh, std::acosh) CHOREO_MATH(atanh, std::atanh) CHOREO_MATH(erfc, std::erfc)
CHOREO_MATH(floor, std::floor) CHOREO_MATH(ceil, std::ceil) CHOREO_MATH(trunc, std::trunc)
CHOREO_MATH(round, std::rint) CHOREO_MATH(lgamma, std::lgamma)
#undef CHOREO_MATH
inline float rsqrt_(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt_(double x) { return 1.0 / std::sqrt(x); }
inline float sigmoid_(float x) { return 1.0f / (1.0f + exp_(-x)); }
inline double sigmoid_(double x) { return 1.0 / (1.0 + std::exp(-x)); }

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
template <class A, class B>
inline auto max_(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return (x >= y) | (x != x) ? x : y;
}
template <class A, class B>
inline auto min_(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return (x <= y) | (x != x) ? x : y;
}
template <class A, class B>
inline auto pow_(A a, B b) {
  using T = std::common_type_t<A, B, float>;
  return std::pow(static_cast<T>(a), static_cast<T>(b));
}
template <class A, class B>
inline auto atan2_(A a, B b) {
  using T = std::common_type_t<A, B, float>;
  return std::atan2(static_cast<T>(a), static_cast<T>(b));
}
template <class A, class B>
inline auto copysign_(A a, B b) {
  using T = std::common_type_t<A, B, float>;
  return std::copysign(static_cast<T>(a), static_cast<T>(b));
}
template <class A, class B>
inline auto fmod_(A a, B b) {
  using T = std::common_type_t<A, B, float>;
  return std::fmod(static_cast<T>(a), static_cast<T>(b));
}
template <class A, class B>
inline auto remainder_(A a, B b) {  // the sign of the divisor
  using T = std::common_type_t<A, B, float>;
  const T y = static_cast<T>(b), rest = std::fmod(static_cast<T>(a), y);
  return rest != 0 && ((y < 0) != (rest < 0)) ? rest + y : rest;
}
template <class A, class B>
inline auto floordiv_(A a, B b) {
  using T = std::common_type_t<A, B, float>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  if (y == 0) return x / y;
  const T rest = std::fmod(x, y);
  T quotient = (x - rest) / y;
  if (rest != 0 && ((y < 0) != (rest < 0))) quotient -= 1;
  if (quotient == 0) return std::copysign(T(0), x / y);
  const T down = std::floor(quotient);
  return quotient - down > T(0.5) ? down + 1 : down;
}

// -- failures ---------------------------------------------------------------------------------------------

// Of each library its own: an inline variable would be one for all that are loaded.
static std::atomic<int> failure_state{0};
static char failure_text[512] = "";

inline void check(bool holds, const char* message) {
  int none = 0;
  if (!holds && failure_state.compare_exchange_strong(none, 1)) {
    std::snprintf(failure_text, sizeof failure_text, "%s", message);
    failure_state.store(2);
  }
}
inline int64_t within(int64_t index, int64_t extent, const char* message) {
  const bool holds = index >= 0 && index < extent;
  check(holds, message);
  return holds ? index : 0;
}
inline int failed() { return failure_state.load(std::memory_order_relaxed) != 0; }
inline void raise_failure() {
  if (failed()) {
    std::fprintf(stderr, "%s\n", failure_text);
    std::abort();
  }
}
inline void require(bool holds, const char* message) {
  if (!holds) {
    std::fprintf(stderr, "%s\n", message);
    std::abort();
  }
}
inline void runtime_check(bool holds, const char* message = "runtime check failed") { require(holds, message); }
#define choreo_assert(condition, ...) \
  choreo::require(static_cast<bool>(condition), "choreo_assert(" #condition ") " __VA_ARGS__)

#if defined(CHOREO_PRINT)
template <class T>
inline decltype(auto) printable(const T& x) {
  if constexpr (std::is_same_v<T, s8> || std::is_same_v<T, u8>)
    return static_cast<int>(x);  // a number, not a letter
  else
    return (x);
}
template <class... T>
inline void print(const T&... items) {
  (std::cout << ... << printable(items));
  std::cout.flush();
}
template <class... T>
inline void println(const T&... items) {
  (std::cout << ... << printable(items)) << std::endl;
}
inline std::ostream& operator<<(std::ostream& out, f16 x) { return out << static_cast<float>(x); }
inline std::ostream& operator<<(std::ostream& out, bf16 x) { return out << static_cast<float>(x); }
#endif

// -- memory -----------------------------------------------------------------------------------------------

constexpr std::size_t alignment = 64;

inline void* take(std::size_t bytes) {
  void* found = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (!found) throw std::bad_alloc();
  return found;
}

// Local buffers are handed out and given back in the order of a stack, from memory that each thread keeps.
struct arena {
  char* base = nullptr;
  std::size_t size = 0, top = 0, wanted = 0;
  ~arena() { std::free(base); }
  char* reserve(std::size_t bytes) {
    if (top == 0 && size < wanted) {
      std::free(base);
      base = static_cast<char*>(take(wanted));
      size = wanted;
    }
    if (top + bytes > size) {
      wanted = 2 * (top + bytes) + 4096;
      return nullptr;
    }
    char* found = base + top;
    top += bytes;
    return found;
  }
};
inline arena& this_arena() {
  static thread_local arena mine;
  return mine;
}

template <class T>
class scratch {
 public:
  explicit scratch(int64_t count) : bytes_((static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64 + 64) {
    char* found = this_arena().reserve(bytes_);
    if (!found) own_ = found = static_cast<char*>(take(bytes_));
    data_ = reinterpret_cast<T*>(found);
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() {
    if (own_)
      std::free(own_);
    else
      this_arena().top -= bytes_;
  }
  T* data() { return data_; }

 private:
  std::size_t bytes_;
  char* own_ = nullptr;
  T* data_;
};

// What a DMA fills, when it can be exchanged with another.
template <class T>
class future {
 public:
  T* data = nullptr;
  future() = default;
  future(const future&) = delete;
  future& operator=(const future&) = delete;
  ~future() { std::free(data); }
  void reserve(int64_t count) {
    if (count <= count_ && data) return;
    std::free(data);
    data = static_cast<T*>(take(static_cast<std::size_t>(count) * sizeof(T)));
    count_ = count;
  }
  void swap(future& other) {
    std::swap(data, other.data);
    std::swap(count_, other.count_);
  }

 private:
  int64_t count_ = 0;
};

template <class T>
inline void fill(T* data, int64_t count, T value) {
  for (int64_t i = 0; i < count; ++i) data[i] = value;
}

template <int N, class S, class T>
inline void copy_dims(const S* from, T* to, const int64_t* extents, const int64_t* a, const int64_t* b) {
  if constexpr (N == 0) {
    *to = *from;
  } else if constexpr (N == 1) {
    if (a[0] == 1 && b[0] == 1) {
      if (extents[0] > 0) std::memcpy(to, from, static_cast<std::size_t>(extents[0]) * sizeof(T));
      return;
    }
    for (int64_t i = 0; i < extents[0]; ++i) to[i * b[0]] = from[i * a[0]];
  } else {
    for (int64_t i = 0; i < extents[0]; ++i)
      copy_dims<N - 1>(from + i * a[0], to + i * b[0], extents + 1, a + 1, b + 1);
  }
}
template <int N, class S, class T>
inline void copy(const S* from, T* to, std::array<int64_t, N> extents, std::array<int64_t, N> from_strides,
                 std::array<int64_t, N> to_strides) {
  static_assert(sizeof(S) == sizeof(T));
  copy_dims<N>(from, to, extents.data(), from_strides.data(), to_strides.data());
}

// -- views, for host code ---------------------------------------------------------------------------------

template <int N>
struct mdspan {
  std::array<int64_t, N> extents{};
  mdspan() = default;
  mdspan(std::initializer_list<int64_t> given) {
    require(given.size() == N, "an mdspan with the wrong number of extents");
    int i = 0;
    for (int64_t each : given) extents[i++] = each;
  }
  int64_t operator[](int i) const { return extents[i]; }
  int64_t count() const {
    int64_t total = 1;
    for (int i = 0; i < N; ++i) total *= extents[i];
    return total;
  }
};

template <class T, int N>
class spanned_view {
 public:
  spanned_view(T* data, mdspan<N> shape) : data_(data), shape_(shape) {}
  T* data() const { return data_; }
  const mdspan<N>& shape() const { return shape_; }
  int64_t element_count() const { return shape_.count(); }
  std::size_t bytes() const { return static_cast<std::size_t>(element_count()) * sizeof(T); }
  T& operator[](int64_t i) const { return data_[i]; }
  template <class... I>
  T& at(I... index) const {
    static_assert(sizeof...(I) == N, "as many indices as dimensions");
    const int64_t given[] = {static_cast<int64_t>(index)..., 0};
    int64_t offset = 0;
    for (int i = 0; i < N; ++i) {
      require(given[i] >= 0 && given[i] < shape_[i], "an index out of bounds");
      offset = offset * shape_[i] + given[i];
    }
    return data_[offset];
  }
  T* begin() const { return data_; }
  T* end() const { return data_ + element_count(); }

 protected:
  T* data_;
  mdspan<N> shape_;
};

template <class T, int N>
class spanned_data : public spanned_view<T, N> {
 public:
  explicit spanned_data(mdspan<N> shape)
      : spanned_view<T, N>(nullptr, shape),
        own_(static_cast<T*>(take(static_cast<std::size_t>(shape.count()) * sizeof(T))), &std::free) {
    this->data_ = own_.get();
    std::memset(static_cast<void*>(this->data_), 0, this->bytes());
  }
  spanned_view<T, N> view() const { return *this; }

 private:
  std::shared_ptr<T> own_;
};

template <class T, int N>
spanned_view<T, N> make_spanview(T* data, mdspan<N> shape) {
  return spanned_view<T, N>(data, shape);
}
template <int N, class T>
spanned_view<T, N> make_spanview(T* data, std::initializer_list<int64_t> shape) {
  return spanned_view<T, N>(data, mdspan<N>(shape));
}
template <class T, int N>
spanned_data<T, N> make_spandata(std::initializer_list<int64_t> shape) {
  return spanned_data<T, N>(mdspan<N>(shape));
}
template <class T, class... I, class = std::enable_if_t<(std::is_integral_v<I> && ...)>>
spanned_data<T, static_cast<int>(sizeof...(I))> make_spandata(I... shape) {
  return spanned_data<T, static_cast<int>(sizeof...(I))>(
      mdspan<static_cast<int>(sizeof...(I))>({static_cast<int64_t>(shape)...}));
}
template <int N, class T>
spanned_data<T, N> copy_as_spanned(const T* data, std::initializer_list<int64_t> shape) {
  auto made = make_spandata<T, N>(shape);
  std::memcpy(made.data(), data, made.bytes());
  return made;
}

}  // namespace choreo

extern "C" inline __attribute__((used, visibility("default"))) const char* choreo_failure() {
  return choreo::failure_text;
}
extern "C" inline __attribute__((used, visibility("default"))) void choreo_clear() {
  choreo::failure_state.store(0);
}
