// Memory for buffers, and copies of blocks.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <utility>

#if defined(__SANITIZE_THREAD__)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_set_fiber_name(void* fiber, const char* name);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_acquire(void* at);
void __tsan_release(void* at);
}
// For the thread sanitizer an asynchronous copy is a thread of its own, which nothing but its wait puts in order.
// It is made at once, so that results stay the same. Not functions: their end would be on another stack of calls.
#define CHOREO_BEGIN_COPY(copy) \
  void* const copy##_before = __tsan_get_current_fiber(); \
  void* const copy = __tsan_create_fiber(0); \
  __tsan_set_fiber_name(copy, "copy"); \
  __tsan_switch_to_fiber(copy, 0)
#define CHOREO_END_COPY(copy, to) \
  __tsan_release(to); \
  __tsan_switch_to_fiber(copy##_before, 1); \
  __tsan_destroy_fiber(copy)
#define CHOREO_ARRIVED(at) __tsan_acquire(at)
#else
#define CHOREO_BEGIN_COPY(copy) static_cast<void>(0)
#define CHOREO_END_COPY(copy, to) static_cast<void>(0)
#define CHOREO_ARRIVED(at) static_cast<void>(0)
#endif

namespace choreo {

constexpr std::size_t alignment = 64;

inline void* take(std::size_t bytes) {
  void* found = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (!found) throw std::bad_alloc();
  return found;
}

// A long loop asks for the memory of a later stretch of so many elements, which may lie behind the end of an array.
constexpr int64_t STRETCH = 256;
#if defined(__GNUC__) && !defined(CHOREO_PORTABLE)
#define CHOREO_ASK(line, writes) __builtin_prefetch(line, writes)
#else
#define CHOREO_ASK(line, writes) static_cast<void>(line)
#endif
template <class T>
inline void will_read(const T* stretch) {
  const char* line = reinterpret_cast<const char*>(stretch);
  for (std::size_t i = 0; i < STRETCH * sizeof(T); i += alignment) CHOREO_ASK(line + i, 0);
}
template <class T>
inline void will_write(const T* stretch) {
  const char* line = reinterpret_cast<const char*>(stretch);
  for (std::size_t i = 0; i < STRETCH * sizeof(T); i += alignment) CHOREO_ASK(line + i, 1);
}
#undef CHOREO_ASK

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
  ~future() { release(); }
  void reserve(int64_t count) {
    if (count <= count_ && data) return;
    release();
    data = static_cast<T*>(take(static_cast<std::size_t>(count) * sizeof(T)));
    count_ = count;
  }
  void refer(T* elsewhere) {  // to a buffer of the program
    release();
    data = elsewhere;
    count_ = 0;
    is_own_ = false;
  }
  void swap(future& other) {
    std::swap(data, other.data);
    std::swap(count_, other.count_);
    std::swap(is_own_, other.is_own_);
  }

 private:
  void release() {
    if (is_own_) std::free(data);
    data = nullptr;
    is_own_ = true;
  }
  bool is_own_ = true;
  int64_t count_ = 0;
};

// rotate(a, b, c): a gets what b held, b what c held, c what a held.
template <class F>
inline void rotate(F& first, F& second) {
  first.swap(second);
}
template <class F, class... Rest>
inline void rotate(F& first, F& second, Rest&... rest) {
  first.swap(second);
  rotate(second, rest...);
}

// One of several buffers, by its number.
template <class T>
inline T* pick(int64_t number, std::initializer_list<T*> from) {
  return from.begin()[number];
}

template <class T>
inline void fill(T* data, int64_t count, T value) {
  for (int64_t i = 0; i < count; ++i) data[i] = value;
}

template <int N, class T>
inline void fill_dims(T* to, const int64_t* extents, const int64_t* strides, T value) {
  if constexpr (N == 0)
    *to = value;
  else
    for (int64_t i = 0; i < extents[0]; ++i) fill_dims<N - 1>(to + i * strides[0], extents + 1, strides + 1, value);
}
// The elements of a tile, and nothing that lies between them.
template <int N, class T>
inline void fill_tile(T* to, std::array<int64_t, N> extents, std::array<int64_t, N> strides, T value) {
  fill_dims<N>(to, extents.data(), strides.data(), value);
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

}  // namespace choreo
