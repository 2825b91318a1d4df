// Failures of a kernel, which its caller asks for, and of host code, which end the program.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace choreo {

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
struct stopped {};  // unwinds a program that cannot go on
// Of sizes: where one is wrong, what follows would use memory that is not its own.
inline void hold(bool holds, const char* message) {
  if (holds) return;
  check(false, message);
  throw stopped();
}
inline int64_t within(int64_t index, int64_t extent, const char* message) {
  const bool holds = index >= 0 && index < extent;
  check(holds, message);
  return holds ? index : 0;
}
inline int64_t positive(int64_t value, const char* message) {
  check(value > 0, message);
  return value > 0 ? value : 1;
}
inline int64_t fitting(int64_t size, int64_t extent, const char* message) {
  const bool holds = size >= 0 && size <= extent;
  check(holds, message);
  return holds ? size : extent;
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
// With the place of the caller, which is a line of the .co file.
inline void choreo_assert(bool holds, const char* message = "", const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: choreo_assert failed%s%s\n", file, line, *message ? ": " : "", message);
  std::abort();
}
inline void runtime_check(bool holds, const char* message = "", const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: runtime check failed%s%s\n", file, line, *message ? ": " : "", message);
  std::abort();
}
template <class Text>  // std::string, without its header
inline auto runtime_check(bool holds, const Text& message, const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) -> decltype(message.c_str(), void()) {
  runtime_check(holds, message.c_str(), file, line);
}
template <class Text>
inline auto choreo_assert(bool holds, const Text& message, const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) -> decltype(message.c_str(), void()) {
  choreo_assert(holds, message.c_str(), file, line);
}
// Ends the program when a status is not 0.
inline void abend_true(bool failed, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!failed) return;
  std::fprintf(stderr, "%s:%d: abend_true: the status is not 0\n", file, line);
  std::abort();
}

}  // namespace choreo

using choreo::choreo_assert;

extern "C" inline __attribute__((used, visibility("default"))) const char* choreo_failure() {
  return choreo::failure_text;
}
extern "C" inline __attribute__((used, visibility("default"))) void choreo_clear() {
  choreo::failure_state.store(0);
}
