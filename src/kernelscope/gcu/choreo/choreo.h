// What programs translated from Choreo need. A saved program gets this and the headers below as one file.
#pragma once

#if defined(CHOREO_HOST)  // host code may use these without including them; kernels alone compile faster
#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <vector>
#endif

#include "runtime/block_functions.h"
#include "runtime/element_types.h"
#include "runtime/failures.h"
#include "runtime/half_stretches.h"
#include "runtime/mathematics.h"
#include "runtime/memory.h"
#include "runtime/views.h"
#if defined(CHOREO_FRAGMENTS)
#include "runtime/fragments.h"
#endif
#if defined(CHOREO_ATOMICS)
#include "runtime/atomics.h"
#endif
#if defined(CHOREO_THREADS)
#include "runtime/concurrency.h"
#endif
#if defined(CHOREO_HOST)
#include "runtime/printing.h"
using namespace choreo::names;
#endif

// Nothing: what stands before a function may also be `extern "C"`, `static` or `template`.
#define __co_device__
// So are CUDA's words for where a function runs: here, all of them run on the CPU.
#define __device__
#define __host__
#define __global__
