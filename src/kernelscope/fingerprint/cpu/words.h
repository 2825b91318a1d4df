// The sum that `bits` is made of, over contiguous memory: definition.py is the reference. Loads may be unaligned.

#pragma once

#include <cstdint>
#include <cstring>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "this engine reads words as they lie in memory, so it needs a little-endian machine"
#endif

#if defined(__ARM_NEON) && defined(__aarch64__) && !defined(KERNELSCOPE_PORTABLE)
#define KERNELSCOPE_NEON
#include <arm_neon.h>
#elif (defined(__AVX512DQ__) || defined(__AVX2__)) && !defined(KERNELSCOPE_PORTABLE)
#define KERNELSCOPE_AVX
#endif

namespace {

using u64 = std::uint64_t;
using u32 = std::uint32_t;

constexpr u64 POSITION = 0x9E3779B97F4A7C15, MIX_FIRST = 0xC2B2AE3D27D4EB4F, MIX_SECOND = 0xBF58476D1CE4E5B9;
constexpr u64 WORD = 8;

// Words in one round of the vector loop; buffers are multiples of it, so that only a tensor's end has a tail.
#ifdef KERNELSCOPE_NEON
constexpr int GROUPS = 3, SCALARS = 7, ROUND = 4 * GROUPS + SCALARS;
#else
constexpr int ROUND = 32;
#endif

inline u64 load(const char* at) {
    u64 word;
    std::memcpy(&word, at, WORD);
    return word;
}

inline u64 least(u64 a, u64 b) { return a < b ? a : b; }

inline u64 mix(u64 h) {
    h *= MIX_FIRST;
    h ^= h >> 32;
    h *= MIX_SECOND;
    return h ^ h >> 29;
}

u64 sum_plain(const char* at, u64 words, u64 first) {
    u64 key = (first + 1) * POSITION, acc = 0;
    for (u64 i = 0; i < words; i++, key += POSITION) acc += mix(load(at + i * WORD) ^ key);
    return acc;
}

#ifdef KERNELSCOPE_NEON

// NEON has no 64-bit multiply, and a scalar one keeps its only pipe busy for three cycles (Neoverse N1). So both
// work at once: in each round 12 words as vectors of 32-bit halves, 7 words as scalars. The halves make the first
// shift, by 32, free. The second half of a round's vector work is done in the next round, because the whole chain
// is longer than what the processor can look ahead. Measured: 2.4 cycles a word, where the scalar loop takes 6.

// Without these the compiler moves constants between vector and scalar registers inside the loop.
template <class... T>
inline void keep_in_registers(T&... x) { (..., [&] { asm("" : "+r"(x)); }()); }
template <class... T>
inline void keep_in_vectors(T&... x) { (..., [&] { asm("" : "+w"(x)); }()); }

struct Halves {
    uint32x4_t low, high;
};

struct Vectors {
    uint64x2_t keys, two, skip, even = vdupq_n_u64(0), odd = vdupq_n_u64(0);
    uint32x4_t a_low = vdupq_n_u32(u32(MIX_FIRST)), a_high = vdupq_n_u32(MIX_FIRST >> 32);
    uint32x4_t b_low = vdupq_n_u32(u32(MIX_SECOND)), b_high = vdupq_n_u32(MIX_SECOND >> 32);
    uint32x4_t zero = vdupq_n_u32(0);

    explicit Vectors(u64 key)
        : keys(vcombine_u64(vcreate_u64(key), vcreate_u64(key + POSITION))),
          two(vdupq_n_u64(2 * POSITION)),
          skip(vdupq_n_u64((2 + SCALARS) * POSITION)) {
        keep_in_vectors(two, skip, a_low, a_high, b_low, b_high, zero);
    }

    // Four words up to `h ^= h >> 32`; the keys then move past the scalar words after a round's last group.
    __attribute__((always_inline)) Halves begin(const char* at, bool last_group) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(at);
        const uint64x2_t x = veorq_u64(vreinterpretq_u64_u8(vld1q_u8(bytes)), keys);
        keys = vaddq_u64(keys, two);
        const uint64x2_t y = veorq_u64(vreinterpretq_u64_u8(vld1q_u8(bytes + 16)), keys);
        keys = vaddq_u64(keys, last_group ? skip : two);
        const uint32x4_t low = vuzp1q_u32(vreinterpretq_u32_u64(x), vreinterpretq_u32_u64(y));
        const uint32x4_t high = vuzp2q_u32(vreinterpretq_u32_u64(x), vreinterpretq_u32_u64(y));
        const uint32x4_t p = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(low), vget_low_u32(a_low)));
        const uint32x4_t q = vreinterpretq_u32_u64(vmull_high_u32(low, a_low));
        uint32x4_t top = vmlaq_u32(vuzp2q_u32(p, q), low, a_high);
        top = vmlaq_u32(top, high, a_low);
        return {veorq_u32(vuzp1q_u32(p, q), top), top};
    }

    __attribute__((always_inline)) void finish(Halves h) {
        const uint32x4_t cross = vmlaq_u32(vmulq_u32(h.low, b_high), h.high, b_low);
        uint64x2_t x = vreinterpretq_u64_u32(vzip1q_u32(zero, cross));
        uint64x2_t y = vreinterpretq_u64_u32(vzip2q_u32(zero, cross));
        x = vmlal_u32(x, vget_low_u32(h.low), vget_low_u32(b_low));
        y = vmlal_high_u32(y, h.low, b_low);
        even = vaddq_u64(even, veorq_u64(x, vshrq_n_u64(x, 29)));
        odd = vaddq_u64(odd, veorq_u64(y, vshrq_n_u64(y, 29)));
    }
};

u64 sum_words(const char* at, u64 words, u64 first) {
    if (words < 2 * ROUND) return sum_plain(at, words, first);
    u64 key = (first + 1) * POSITION, acc = 0;
    Vectors vectors(key);
    key += 4 * GROUPS * POSITION;
    u64 step = POSITION, skip = 4 * GROUPS * POSITION, a = MIX_FIRST, b = MIX_SECOND;
    keep_in_registers(step, skip, a, b);
    Halves halves[GROUPS];
#pragma GCC unroll 3
    for (int g = 0; g < GROUPS; g++) halves[g] = vectors.begin(at + 32 * g, g == GROUPS - 1);
    const u64 rounds = words / ROUND;
    for (u64 round = 1; round <= rounds; round++) {
        const char* next = round < rounds ? at + ROUND * WORD : at;  // the last one is begun in vain
        const char* scalars = at + 4 * GROUPS * WORD;
#pragma GCC unroll 3
        for (int g = 0; g < GROUPS; g++) {
            vectors.finish(halves[g]);
            halves[g] = vectors.begin(next + 32 * g, g == GROUPS - 1);
#pragma GCC unroll 3
            for (int s = SCALARS * g / GROUPS; s < SCALARS * (g + 1) / GROUPS; s++) {
                u64 h = (load(scalars + s * WORD) ^ key) * a;
                key += step;
                h = (h ^ h >> 32) * b;
                acc += h ^ h >> 29;
            }
        }
        key += skip;
        at += ROUND * WORD;
    }
    acc += vaddvq_u64(vaddq_u64(vectors.even, vectors.odd));
    return acc + sum_plain(at, words - rounds * ROUND, first + rounds * ROUND);
}

#elif defined(KERNELSCOPE_AVX)

// The compiler knows the best 64-bit vector multiply: one instruction with AVX-512, three 32-bit ones before that.
// Left to itself it takes vectors of half the width.
#ifdef __AVX512DQ__
constexpr u64 LANES = 8;
#else
constexpr u64 LANES = 4;
#endif
using Vector = u64 __attribute__((vector_size(LANES * WORD)));
constexpr u64 UNROLL = 4;

u64 sum_words(const char* at, u64 words, u64 first) {
    const u64 rounds = words / (UNROLL * LANES);
    Vector keys[UNROLL], sums[UNROLL] = {};
    for (u64 i = 0; i < UNROLL * LANES; i++) keys[i / LANES][i % LANES] = (first + 1 + i) * POSITION;
    for (u64 round = 0; round < rounds; round++) {
#pragma GCC unroll 4
        for (u64 v = 0; v < UNROLL; v++, at += sizeof(Vector)) {
            Vector h;
            std::memcpy(&h, at, sizeof h);
            h = (h ^ keys[v]) * MIX_FIRST;
            h = (h ^ h >> 32) * MIX_SECOND;
            sums[v] += h ^ h >> 29;
            keys[v] += UNROLL * LANES * POSITION;
        }
    }
    const Vector sum = sums[0] + sums[1] + sums[2] + sums[3];
    u64 acc = 0;
    for (u64 lane = 0; lane < LANES; lane++) acc += sum[lane];
    const u64 done = rounds * UNROLL * LANES;
    return acc + sum_plain(at, words - done, first + done);
}

#else

u64 sum_words(const char* at, u64 words, u64 first) { return sum_plain(at, words, first); }

#endif

// Contiguous bytes whose first word is number `first`; the last word may be short.
u64 sum_bytes(const char* at, u64 bytes, u64 first) {
    const u64 words = bytes / WORD, rest = bytes % WORD;
    u64 acc = sum_words(at, words, first);
    if (rest) {
        char last[WORD] = {};
        std::memcpy(last, at + words * WORD, rest);
        acc += mix(load(last) ^ ((first + words + 1) * POSITION));
    }
    return acc;
}

// body(begin, end) over 0 … total in as many pieces as threads; the order of the sum does not matter.
template <class Body>
u64 in_threads(u64 total, int threads, Body body) {
    if (threads <= 1) return body(u64(0), total);
    const u64 share = total / threads, extra = total % threads;
    u64 acc = 0;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : acc)
#endif
    for (int t = 0; t < threads; t++) {
        const u64 begin = share * t + least(t, extra);
        acc += body(begin, begin + share + (u64(t) < extra));
    }
    return acc;
}

}  // namespace
