// One block of elements of two bytes or more, summed up around one of its own elements.

#pragma once

#include "elements.h"
#include "record.h"

namespace {

#if defined(__AVX512F__)
constexpr u64 WIDTH = 8;
#elif defined(__AVX__)
constexpr u64 WIDTH = 4;
#else
constexpr u64 WIDTH = 2;
#endif
using Lanes = double __attribute__((vector_size(WIDTH * sizeof(double))));
using Counts = std::int64_t __attribute__((vector_size(WIDTH * sizeof(double))));

#ifdef KERNELSCOPE_NEON
inline Lanes smaller(Lanes a, Lanes b) { return Lanes(vminnmq_f64(float64x2_t(a), float64x2_t(b))); }
inline Lanes larger(Lanes a, Lanes b) { return Lanes(vmaxnmq_f64(float64x2_t(a), float64x2_t(b))); }
#else
inline Lanes smaller(Lanes a, Lanes b) { return a < b ? a : b; }
inline Lanes larger(Lanes a, Lanes b) { return a > b ? a : b; }
#endif

// Running sums side by side: four at least, to have work while an addition is under way, and not so many that they
// do not fit the registers.
struct Sums {
    static constexpr u64 PARTS = WIDTH < 4 ? 4 / WIDTH : 1, STEPS = AT_ONCE / WIDTH;
    Lanes around, total[PARTS], squares[PARTS], sizes[PARTS], low[PARTS], high[PARTS];
    Counts zeros[PARTS];

    Sums(double middle, double any) : around(middle - Lanes{}), total{}, squares{}, sizes{}, zeros{} {
        for (u64 p = 0; p < PARTS; p++) low[p] = high[p] = any - Lanes{};
    }

    __attribute__((always_inline)) void add(const Numbers& eight) {
        Lanes x[STEPS];
        std::memcpy(x, &eight, sizeof x);
#pragma GCC unroll 4
        for (u64 step = 0; step < STEPS; step++) {
            const u64 p = step % PARTS;
            const Lanes away = x[step] - around;
            total[p] += away;
            squares[p] += away * away;
            sizes[p] += same_bits<Lanes>(same_bits<Counts>(x[step]) & (INT64_MAX - Counts{}));
            low[p] = smaller(x[step], low[p]);
            high[p] = larger(x[step], high[p]);
            zeros[p] -= x[step] == 0.0;
        }
    }
};

// What is left of squares around an element once they are around the mean. If that is little, the element lay far
// from the others, and what is left is mostly rounding.
constexpr double LITTLE = 1.0 / 64;

// Every element is finite, or the sum of absolute values is not. Returns the squares around `around`.
template <class Item>
double sum_up_around(double around, const char* at, u64 count, Record& record) {
    Sums sums(around, Item::read(at, least(count, AT_ONCE))[0]);
    u64 i = 0;
    for (; i + AT_ONCE <= count; i += AT_ONCE) sums.add(Item::read(at + i * Item::ITEM));
    const Sums done = sums;  // a lane is read from memory, and `sums` should stay in registers
    double total = 0, square = 0;
    for (u64 k = 0; k < Sums::PARTS * WIDTH; k++) {
        const u64 p = k / WIDTH, lane = k % WIDTH;
        total += done.total[p][lane], square += done.squares[p][lane], record.l1 += done.sizes[p][lane];
        record.zeros += done.zeros[p][lane];
        record.low = done.low[p][lane] < record.low ? done.low[p][lane] : record.low;
        record.high = done.high[p][lane] > record.high ? done.high[p][lane] : record.high;
    }
    if (i < count) {
        const Numbers x = Item::read(at + i * Item::ITEM, count - i);
        for (u64 k = 0; k < count - i; k++) {
            total += x[k] - around, square += (x[k] - around) * (x[k] - around);
            record.add(x[k]);
        }
    }
    record.finite = count;
    record.settle(around, total, square);
    return square;
}

template <class Item>
bool sum_up_finite(const char* at, u64 count, Record& record) {
    const double square = sum_up_around<Item>(Item::read(at, least(count, AT_ONCE))[0], at, count, record);
    if (record.l1 < INF && record.squares < square * LITTLE) {
        const double mean = record.mean;
        record = Record();
        sum_up_around<Item>(mean, at, count, record);
    }
    return record.l1 < INF;
}

// Returns the squares around `around`, which with `first` becomes the first finite element.
template <class Item>
double sum_up_some(double& around, bool first, const char* at, u64 count, Record& record) {
    double total = 0, square = 0;
    for (u64 i = 0; i < count; i += AT_ONCE) {
        const u64 here = least(count - i, AT_ONCE);
        const Numbers x = Item::read(at + i * Item::ITEM, here);
        for (u64 k = 0; k < here; k++) {
            if (!(std::fabs(x[k]) < INF)) {
                record.count(x[k]);
                continue;
            }
            if (first && !record.finite) around = x[k];
            const double away = x[k] - around;
            record.finite++;
            total += away, square += away * away;
            record.add(x[k]);
        }
    }
    if (record.finite) record.settle(around, total, square);
    return square;
}

template <class Item>
Record sum_up_checked(const char* at, u64 count) {
    Record record;
    double around = 0;
    const double square = sum_up_some<Item>(around, true, at, count, record);
    if (square < INF && record.squares < square * LITTLE) {
        around = record.mean;
        record = Record();
        sum_up_some<Item>(around, false, at, count, record);
    }
    return record;
}

template <class Item>
struct Summed {
    static constexpr u64 ITEM = Item::ITEM;
    Record record;

    void block(const char* at, u64 bytes) {
        Record one;
        if (!sum_up_finite<Item>(at, bytes / ITEM, one)) one = sum_up_checked<Item>(at, bytes / ITEM);
        record.merge(one);
    }
    Record done() const { return record; }
};

}  // namespace
