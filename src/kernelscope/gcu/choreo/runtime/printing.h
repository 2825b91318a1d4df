// print() and println(). A header of its own: <iostream> takes as long to compile as all the rest.
#pragma once

#include <iostream>
#include <type_traits>

#include "element_types.h"
#include "views.h"

namespace choreo {

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
template <int N>
inline std::ostream& operator<<(std::ostream& out, const mdspan<N>& shape) {
  for (int i = 0; i < N; ++i) out << (i ? ", " : "") << shape[i];
  return out;
}
inline std::ostream& operator<<(std::ostream& out, bf16 x) { return out << static_cast<float>(x); }

}  // namespace choreo
