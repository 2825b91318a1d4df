// Elements that several threads change: each function gives what was there before.
#pragma once

#include <type_traits>

namespace choreo {

template <class T, class F>
inline T atomic_change(T& place, const F& change) {
  T before, after;
  __atomic_load(&place, &before, __ATOMIC_SEQ_CST);
  do {
    after = change(before);
  } while (!__atomic_compare_exchange(&place, &before, &after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return before;
}
template <class T>
inline T atomic_add(T& place, T value) {
  return atomic_change(place, [value](T x) { return static_cast<T>(x + value); });
}
template <class T>
inline T atomic_sub(T& place, T value) {
  return atomic_change(place, [value](T x) { return static_cast<T>(x - value); });
}
template <class T>
inline T atomic_max(T& place, T value) {
  return atomic_change(place, [value](T x) { return x < value ? value : x; });
}
template <class T>
inline T atomic_min(T& place, T value) {
  return atomic_change(place, [value](T x) { return value < x ? value : x; });
}
template <class T>
inline T atomic_and(T& place, T value) {
  return atomic_change(place, [value](T x) { return static_cast<T>(x & value); });
}
template <class T>
inline T atomic_or(T& place, T value) {
  return atomic_change(place, [value](T x) { return static_cast<T>(x | value); });
}
template <class T>
inline T atomic_xor(T& place, T value) {
  return atomic_change(place, [value](T x) { return static_cast<T>(x ^ value); });
}
template <class T>
inline T atomic_exch(T& place, T value) {
  return atomic_change(place, [value](T) { return value; });
}
template <class T>
inline T atomic_cas(T& place, T expected, T value) {
  return atomic_change(place, [expected, value](T x) { return x == expected ? value : x; });
}

}  // namespace choreo
