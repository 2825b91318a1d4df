// Views, for host code.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <type_traits>

#include "failures.h"
#include "memory.h"

namespace choreo {

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
