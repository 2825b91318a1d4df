// What programs translated from Choreo need. A saved program gets this and the headers below as one file.
#pragma once

#include "runtime/element_types.h"
#include "runtime/failures.h"
#include "runtime/mathematics.h"
#include "runtime/memory.h"
#include "runtime/views.h"
#if defined(CHOREO_PRINT)
#include "runtime/printing.h"
#endif

#define __co_device__ static inline
