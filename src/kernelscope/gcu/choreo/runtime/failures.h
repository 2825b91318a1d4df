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

}  // namespace choreo

extern "C" inline __attribute__((used, visibility("default"))) const char* choreo_failure() {
  return choreo::failure_text;
}
extern "C" inline __attribute__((used, visibility("default"))) void choreo_clear() {
  choreo::failure_state.store(0);
}
