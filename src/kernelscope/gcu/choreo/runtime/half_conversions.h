// Conversions between f16 and f32 by the processor's instructions, as functions that compilers vectorise.
//
// g++ makes no vector code of these instructions. So each is declared with OpenMP's `declare simd`, and what the
// vector ABI calls (_ZGVeN16v_choreo_f16_widen converts sixteen) is the instruction itself. Both sides are 32 bits
// wide, the half in the lower ones.
#pragma once

#include <cstdint>

#if defined(__GNUC__) && !defined(__clang__) && defined(__AVX2__) && defined(__F16C__) && !defined(CHOREO_PORTABLE)
#define CHOREO_F16_INSTRUCTIONS

extern "C" {
#pragma omp declare simd notinbranch
float choreo_f16_widen(uint32_t half) __attribute__((const, nothrow));
#pragma omp declare simd notinbranch
uint32_t choreo_f16_narrow(float x) __attribute__((const, nothrow));
}

#define CHOREO_CODE(name, code) \
  ".weak " name "\n.hidden " name "\n.type " name ", @function\n" name ":\n" code "ret\n"
// The zero rounds to nearest, ties to even.
asm(".pushsection .text\n"
    CHOREO_CODE("choreo_f16_widen", "vmovd %edi, %xmm0\nvcvtph2ps %xmm0, %xmm0\n")
    CHOREO_CODE("_ZGVbN4v_choreo_f16_widen", "vpackusdw %xmm0, %xmm0, %xmm0\nvcvtph2ps %xmm0, %xmm0\n")
    CHOREO_CODE("_ZGVcN8v_choreo_f16_widen", "vpackusdw %xmm1, %xmm0, %xmm0\nvcvtph2ps %xmm0, %ymm0\n")
    CHOREO_CODE("_ZGVdN8v_choreo_f16_widen",
                "vextracti128 $1, %ymm0, %xmm1\nvpackusdw %xmm1, %xmm0, %xmm0\nvcvtph2ps %xmm0, %ymm0\n")
    CHOREO_CODE("_ZGVeN16v_choreo_f16_widen", "vpmovdw %zmm0, %ymm0\nvcvtph2ps %ymm0, %zmm0\n")
    CHOREO_CODE("choreo_f16_narrow", "vcvtps2ph $0, %xmm0, %xmm0\nvmovd %xmm0, %eax\nmovzwl %ax, %eax\n")
    CHOREO_CODE("_ZGVbN4v_choreo_f16_narrow", "vcvtps2ph $0, %xmm0, %xmm0\nvpmovzxwd %xmm0, %xmm0\n")
    CHOREO_CODE("_ZGVcN4v_choreo_f16_narrow", "vcvtps2ph $0, %xmm0, %xmm0\nvpmovzxwd %xmm0, %xmm0\n")
    CHOREO_CODE("_ZGVdN8v_choreo_f16_narrow", "vcvtps2ph $0, %ymm0, %xmm0\nvpmovzxwd %xmm0, %ymm0\n")
    CHOREO_CODE("_ZGVeN16v_choreo_f16_narrow", "vcvtps2ph $0, %zmm0, %ymm0\nvpmovzxwd %ymm0, %zmm0\n")
    ".popsection\n");
#undef CHOREO_CODE
#endif
