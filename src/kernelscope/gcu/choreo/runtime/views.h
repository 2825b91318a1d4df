// Views, for host code.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <type_traits>

#include "element_types.h"
#include "failures.h"
#include "memory.h"

namespace choreo {

// The same numbers in every run, so that a failure can be repeated.
inline uint64_t next_random() {
  static uint64_t state = 0;
  uint64_t x = state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
template <class T>
inline T random_between(double low, double high) {  // an integer may be the upper limit, a fraction not
  const double unit = static_cast<double>(next_random() >> 11) * 0x1p-53;
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<int64_t>(low) +
                          static_cast<int64_t>(unit * (high - low + 1.0)));
  else
    return static_cast<T>(low + unit * (high - low));
}

inline namespace names {

template <int N>
struct mdspan {
  std::array<int64_t, N> extents{};
  mdspan() = default;
  template <class... I, class = std::enable_if_t<sizeof...(I) == N && (std::is_integral_v<I> && ...)>>
  mdspan(I... given) : extents{static_cast<int64_t>(given)...} {}
  mdspan(std::initializer_list<std::size_t> given) {
    require(given.size() == N, "an mdspan with the wrong number of extents");
    int i = 0;
    for (std::size_t each : given) extents[i++] = static_cast<int64_t>(each);
  }
  std::size_t operator[](int i) const { return static_cast<std::size_t>(extents[i]); }
  constexpr std::size_t size() const { return N; }
  const int64_t* begin() const { return extents.data(); }
  const int64_t* end() const { return extents.data() + N; }
  int64_t count() const {
    int64_t total = 1;
    for (int i = 0; i < N; ++i) total *= extents[i];
    return total;
  }
  friend bool operator==(const mdspan& a, const mdspan& b) { return a.extents == b.extents; }
  friend bool operator!=(const mdspan& a, const mdspan& b) { return !(a == b); }
};

template <class T, int N>
class spanned_view {
 public:
  spanned_view(T* data, mdspan<N> shape) : data_(data), shape_(shape) {}
  T* data() const { return data_; }
  const mdspan<N>& shape() const { return shape_; }
  constexpr std::size_t rank() const { return N; }
  std::size_t element_count() const { return static_cast<std::size_t>(shape_.count()); }
  std::size_t size() const { return element_count(); }
  std::size_t bytes() const { return element_count() * sizeof(T); }
  // a[i][j]: an element of a vector, a view of the rest otherwise.
  decltype(auto) operator[](int64_t i) const {
    if (i < 0 || i >= shape_.extents[0]) {
      std::fprintf(stderr, "index %lld is out of bounds for %lld elements\n", static_cast<long long>(i),
                   static_cast<long long>(shape_.extents[0]));
      std::abort();
    }
    if constexpr (N == 1) {
      return (data_[i]);
    } else {
      mdspan<N - 1> rest;
      for (int each = 1; each < N; ++each) rest.extents[each - 1] = shape_.extents[each];
      return spanned_view<T, N - 1>(data_ + i * rest.count(), rest);
    }
  }
  template <class... I>
  T& at(I... index) const {
    static_assert(sizeof...(I) == N, "as many indices as dimensions");
    const int64_t given[] = {static_cast<int64_t>(index)..., 0};
    int64_t offset = 0;
    for (int i = 0; i < N; ++i) {
      require(given[i] >= 0 && given[i] < shape_.extents[i], "an index out of bounds");
      offset = offset * shape_.extents[i] + given[i];
    }
    return data_[offset];
  }
  template <class... I>
  T& operator()(I... index) const {
    return at(index...);
  }
  T* begin() const { return data_; }
  T* end() const { return data_ + element_count(); }
  template <class V>
  void fill(V value) const {
    for (T& each : *this) each = static_cast<T>(value);
  }
  template <class L, class H>
  void fill_random(L low, H high) const {
    for (T& each : *this) each = random_between<T>(static_cast<double>(low), static_cast<double>(high));
  }
  void fill_random() const {
    fill_random(std::is_integral_v<T> ? (std::is_signed_v<T> ? -100.0 : 0.0) : -1.0,
                std::is_integral_v<T> ? 100.0 : 1.0);
  }
  friend bool operator==(const spanned_view& a, const spanned_view& b) {
    if (a.shape_ != b.shape_) return false;
    for (std::size_t i = 0; i < a.element_count(); ++i)
      if (!(a.data_[i] == b.data_[i])) return false;
    return true;
  }
  friend bool operator!=(const spanned_view& a, const spanned_view& b) { return !(a == b); }

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

// The steps of a call. On a CPU a tensor and a buffer are the same memory, so nothing is copied.
template <class T>
T* somewhere(T* tensor) {  // an index that is out of bounds becomes 0, also where there is no element at all
  alignas(64) static char spare[64];
  return tensor ? tensor : reinterpret_cast<T*>(spare);
}
template <class T, int N>
T* tensor_to_gcu_buffer(const spanned_view<T, N>& tensor) {
  return somewhere(tensor.data());
}
template <class T>
T* tensor_to_gcu_buffer(void* tensor) {
  return somewhere(static_cast<T*>(tensor));
}
template <class T>
T* tensor_to_gcu_buffer(const void* tensor) {
  static_assert(std::is_const_v<T>, "a tensor that is only read");
  return somewhere(static_cast<T*>(tensor));
}
template <class T, int N>
spanned_data<T, N> allocate_buffer(mdspan<N> shape) {
  return spanned_data<T, N>(shape);
}
template <class T, int N>
spanned_data<T, N> gcu_buffer_to_tensor(const spanned_data<T, N>& buffer) {
  return buffer;
}

template <int N>
mdspan<N> make_mdspan(std::initializer_list<std::size_t> shape) {
  return mdspan<N>(shape);
}
template <class T, int N>
spanned_view<T, N> make_spanview(T* data, mdspan<N> shape) {
  return spanned_view<T, N>(data, shape);
}
template <int N, class T, class = std::enable_if_t<!std::is_array_v<T>>>
spanned_view<T, N> make_spanview(T* data, std::initializer_list<std::size_t> shape) {
  return spanned_view<T, N>(data, mdspan<N>(shape));
}
// `f32 a[M][N]` with its shape, or with another one of as many elements.
template <int N, class T, std::size_t A, class Element = std::remove_all_extents_t<T>,
          class = std::enable_if_t<std::is_array_v<T>>>
spanned_view<Element, N> make_spanview(T (&data)[A], std::initializer_list<std::size_t> shape) {
  mdspan<N> made(shape);
  require(static_cast<std::size_t>(made.count()) <= sizeof(data) / sizeof(Element),
          "make_spanview: the shape has more elements than the array");
  return spanned_view<Element, N>(reinterpret_cast<Element*>(data), made);
}
template <class T, std::size_t A>
spanned_view<T, 1> make_spanview(T (&data)[A]) {
  return spanned_view<T, 1>(data, mdspan<1>(A));
}
template <class T, std::size_t A, std::size_t B>
spanned_view<T, 2> make_spanview(T (&data)[A][B]) {
  return spanned_view<T, 2>(&data[0][0], mdspan<2>(A, B));
}
template <class T, std::size_t A, std::size_t B, std::size_t C>
spanned_view<T, 3> make_spanview(T (&data)[A][B][C]) {
  return spanned_view<T, 3>(&data[0][0][0], mdspan<3>(A, B, C));
}
template <class T, int N>
spanned_data<T, N> make_spandata(std::initializer_list<std::size_t> shape) {
  return spanned_data<T, N>(mdspan<N>(shape));
}
template <class T, class... I, class = std::enable_if_t<(std::is_integral_v<I> && ...)>>
spanned_data<T, static_cast<int>(sizeof...(I))> make_spandata(I... shape) {
  return spanned_data<T, static_cast<int>(sizeof...(I))>(mdspan<static_cast<int>(sizeof...(I))>(shape...));
}
template <int N, class T, class = std::enable_if_t<!std::is_array_v<T>>>
spanned_data<std::remove_const_t<T>, N> copy_as_spanned(T* data, std::initializer_list<std::size_t> shape) {
  auto made = make_spandata<std::remove_const_t<T>, N>(shape);
  std::memcpy(made.data(), data, made.bytes());
  return made;
}
template <int N, class T, std::size_t A, class Element = std::remove_all_extents_t<T>,
          class = std::enable_if_t<std::is_array_v<T>>>
spanned_data<std::remove_const_t<Element>, N> copy_as_spanned(T (&data)[A], std::initializer_list<std::size_t> shape) {
  return copy_as_spanned<N>(make_spanview<N>(data, shape).data(), shape);
}

}  // namespace names
}  // namespace choreo
