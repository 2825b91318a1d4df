// One block of one-byte elements: few values, so integers are summed exactly and floats are counted.

#pragma once

#include <type_traits>

#include "record.h"

namespace {

// --- one-byte integers: sums of a block fit 32 bits ---

template <class T>
struct Small {
    static constexpr u64 ITEM = 1;
    static_assert(BLOCK_BYTES * 255 * 255 < u64(1) << 32);
    Record record;

    void block(const char* at, u64 bytes) {
        const auto* from = reinterpret_cast<const std::uint8_t*>(at);
        std::int32_t total = 0, low = 255, high = -255;
        u32 squares = 0, sizes = 0, zeros = 0;
        for (u64 i = 0; i < bytes; i++) {
            const std::int32_t x = std::is_same<T, bool>::value ? from[i] != 0 : T(from[i]);
            total += x, squares += u32(x * x), sizes += u32(x < 0 ? -x : x), zeros += x == 0;
            low = x < low ? x : low, high = x > high ? x : high;
        }
        Record one;
        const double n = double(bytes), sum = total;
        one.finite = n, one.mean = sum / n;
        one.squares = (n * squares - sum * sum) / n;  // exact but for the last step
        one.l1 = sizes, one.low = low, one.high = high, one.zeros = zeros;
        record.merge(one);
    }
    Record done() const { return record; }
};

// --- one-byte floats: counted by their 256 values, in eight tables so that equal neighbours do not wait ---

double small_float(u32 byte, int exponent_bits, int bias) {
    const int mantissa_bits = 7 - exponent_bits;
    const int mantissa = byte & ((1 << mantissa_bits) - 1);
    const int exponent = byte >> mantissa_bits & ((1 << exponent_bits) - 1);
    const double size = exponent ? std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)
                                 : std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return byte & 0x80 ? -size : size;
}

double e4m3fn(u32 byte) { return (byte & 0x7f) == 0x7f ? NAN : small_float(byte, 4, 7); }
double e4m3fnuz(u32 byte) { return byte == 0x80 ? NAN : small_float(byte, 4, 8); }
double e5m2fnuz(u32 byte) { return byte == 0x80 ? NAN : small_float(byte, 5, 16); }
double e5m2(u32 byte) {
    if ((byte & 0x7c) != 0x7c) return small_float(byte, 5, 15);
    return byte & 3 ? NAN : byte & 0x80 ? -INF : INF;
}
double e8m0fnu(u32 byte) { return byte == 0xff ? NAN : std::ldexp(1.0, int(byte) - 127); }

template <double (*VALUE)(u32)>
struct Counted {
    static constexpr u64 ITEM = 1;
    u64 counts[256] = {};

    void block(const char* at, u64 bytes) {
        u32 seen[8][256] = {};
        static_assert(BLOCK_BYTES / 8 < 1 << 16);
        const auto* from = reinterpret_cast<const std::uint8_t*>(at);
        u64 i = 0;
        for (; i + 8 <= bytes; i += 8) {
            const u64 word = load(at + i);
#pragma GCC unroll 8
            for (int k = 0; k < 8; k++) seen[k][word >> 8 * k & 0xff]++;
        }
        for (; i < bytes; i++) seen[0][from[i]]++;
        for (int k = 0; k < 8; k++)
            for (int v = 0; v < 256; v++) counts[v] += seen[k][v];
    }

    Record done() const {
        Record all;
        for (u32 v = 0; v < 256; v++) {
            if (!counts[v]) continue;
            Record one;
            const double x = VALUE(v), count = double(counts[v]);
            if (std::fabs(x) < INF) {
                one.finite = count, one.mean = one.low = one.high = x, one.l1 = std::fabs(x) * count;
                one.zeros = x == 0 ? counts[v] : 0;
            } else {
                (x != x ? one.nan : x > 0 ? one.pos_inf : one.neg_inf) = counts[v];
            }
            all.merge(one);
        }
        return all;
    }
};

}  // namespace
