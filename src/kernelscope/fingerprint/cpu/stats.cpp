// `bits` and the statistics of a CPU tensor in one pass: stats.py says what a row holds, docs/fingerprint.md
// what the numbers mean.
//
// A tensor is cut into blocks that stay in the first cache, in logical order. Each block is hashed and then
// summed up around one of its own elements; blocks are merged in order into chunks, chunks in order into the
// row. Where the cuts lie depends on the size alone, so that the number of threads changes nothing.

#include "cpu_engine.cpp"

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace {

constexpr u64 BLOCK_BYTES = 16 << 10, CHUNK_BLOCKS = 4, MOST_CHUNKS = 8192;
constexpr u64 AT_ONCE = 8;  // elements in one step, whatever the width of the machine's vectors
constexpr double INF = std::numeric_limits<double>::infinity();

template <class T>
struct Vectors8 {
    typedef T Type __attribute__((vector_size(AT_ONCE * sizeof(T))));
};
template <class T>
using Of8 = typename Vectors8<T>::Type;
using Numbers = Of8<double>;

struct Record {
    double finite = 0, mean = 0, squares = 0;  // squares: summed distances from the mean, squared
    double l1 = 0, low = INF, high = -INF;
    u64 nan = 0, pos_inf = 0, neg_inf = 0, zeros = 0;

    void merge(const Record& other) {
        if (other.finite) {
            const double total = finite + other.finite, apart = other.mean - mean;
            if (finite) {
                squares += other.squares + apart * apart * (finite * (other.finite / total));
                mean += apart * (other.finite / total);
            } else {
                squares = other.squares, mean = other.mean;
            }
            finite = total;
        }
        l1 += other.l1;
        low = other.low < low ? other.low : low;
        high = other.high > high ? other.high : high;
        nan += other.nan, pos_inf += other.pos_inf, neg_inf += other.neg_inf, zeros += other.zeros;
    }

    void add(double finite_x) {
        l1 += std::fabs(finite_x), zeros += finite_x == 0;
        low = finite_x < low ? finite_x : low;
        high = finite_x > high ? finite_x : high;
    }

    // Mean and squares from the sums of distances from `around`, and of their squares.
    void settle(double around, double total, double square) {
        mean = around + total / finite;
        square -= total * (total / finite);
        squares = square < 0 ? 0 : square;
    }

    void count(double x) {
        if (x != x) nan++;
        else if (x == INF) pos_inf++;
        else if (x == -INF) neg_inf++;
    }
};

// --- eight elements as doubles ---

template <class To, class From>
inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

template <class T>
inline Of8<T> eight(const char* at) {
    Of8<T> items;
    std::memcpy(&items, at, sizeof items);
    return items;
}

// A reader of fewer than eight: the rest is zero.
template <class Item>
struct Reader {
    static Numbers read(const char* at) { return Item::from(at); }
    static Numbers read(const char* at, u64 count) {
        char items[AT_ONCE * Item::ITEM] = {};
        std::memcpy(items, at, count * Item::ITEM);
        return Item::from(items);
    }
};

template <class T>
struct Plain : Reader<Plain<T>> {
    static constexpr u64 ITEM = sizeof(T);
    static Numbers from(const char* at) { return __builtin_convertvector(eight<T>(at), Numbers); }
};

struct BFloat16 : Reader<BFloat16> {
    static constexpr u64 ITEM = 2;
    static Numbers from(const char* at) {
        const auto wide = __builtin_convertvector(eight<std::uint16_t>(at), Of8<u32>) << 16;
        return __builtin_convertvector(same_bits<Of8<float>>(wide), Numbers);
    }
};

struct Float16 : Reader<Float16> {
    static constexpr u64 ITEM = 2;
    static Numbers from(const char* at) {
        const auto half = __builtin_convertvector(eight<std::uint16_t>(at), Of8<u32>);
        // Shifted into place the pattern is that of a float 2^112 times smaller, subnormal or not.
        const Of8<float> scaled = same_bits<Of8<float>>((half & 0x7fff) << 13) * 0x1p112f;
        const auto special = same_bits<Of8<u32>>((half & 0x7c00) == 0x7c00) & 0x7f800000;
        const auto bits = same_bits<Of8<u32>>(scaled) | special | (half & 0x8000) << 16;
        return __builtin_convertvector(same_bits<Of8<float>>(bits), Numbers);
    }
};

// Absolute values. Squares of floats and halves are exact in a double, and cannot overflow there.
template <class Part>
struct Complex : Reader<Complex<Part>> {
    static constexpr u64 ITEM = 2 * Part::ITEM;
    static Numbers from(const char* at) {
        const Numbers first = Part::from(at), second = Part::from(at + AT_ONCE * Part::ITEM);
        Numbers size;
        for (u64 i = 0; i < AT_ONCE; i++) {
            const Numbers& from = i < AT_ONCE / 2 ? first : second;
            const double re = from[2 * i % AT_ONCE], im = from[2 * i % AT_ONCE + 1];
            if (Part::ITEM < 8) size[i] = std::sqrt(re * re + im * im);
            else size[i] = re != re || im != im ? re + im : std::hypot(re, im);
            // The definition counts an element as NaN when a part is, and sqrt agrees; hypot would say infinite.
        }
        return size;
    }
};

// --- one block ---

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

// --- all blocks ---

// The logical bytes from `begin` on: in place where they are contiguous, otherwise through the buffer.
struct Blocks {
    const char* base;
    u64 bytes;
    const Layout* layout;  // none: contiguous

    const char* fetch(char* buffer, u64 begin, u64 size) const {
        if (!layout) return base + begin;
        const u64 item = layout->item, inner = layout->inner(), stride = layout->stride[layout->dims - 1];
        u64 element = begin / item, column = element % inner;
        const u64 end = element + size / item;
        RowWalk row(*layout, element / inner);
        for (char* to = buffer; element < end;) {
            const u64 count = least(inner - column, end - element);
            copy_run(to, row.at + column * stride, count, stride, item);
            to += count * item, element += count, column += count;
            if (column == inner) row.next(), column = 0;
        }
        return buffer;
    }
};

template <class Summary>
u64 sum_up(const Blocks& from, int threads, Record& row) {
    const u64 blocks = (from.bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    const u64 wanted = (blocks + MOST_CHUNKS - 1) / MOST_CHUNKS;
    const u64 in_chunk = wanted < CHUNK_BLOCKS ? CHUNK_BLOCKS : wanted;
    const u64 chunks = (blocks + in_chunk - 1) / in_chunk;
    std::vector<Record> records(chunks);
    const u64 acc = in_threads(chunks, int(least(threads, chunks)), [&](u64 begin, u64 end) {
        alignas(64) char buffer[BLOCK_BYTES];
        u64 part = 0;
        for (u64 chunk = begin; chunk < end; chunk++) {
            Summary summary;
            for (u64 block = chunk * in_chunk; block < least(blocks, (chunk + 1) * in_chunk); block++) {
                const u64 start = block * BLOCK_BYTES, size = least(BLOCK_BYTES, from.bytes - start);
                const char* at = from.fetch(buffer, start, size);
                part += sum_bytes(at, size, start / WORD);
                summary.block(at, size);
            }
            records[chunk] = summary.done();
        }
        return part;
    });
    for (const Record& record : records) row.merge(record);
    return acc;
}

// By the dtype codes of definition.py.
u64 sum_up_as(int code, const Blocks& from, int threads, Record& row) {
    switch (code) {
        case 1: return sum_up<Small<bool>>(from, threads, row);
        case 2: return sum_up<Small<std::uint8_t>>(from, threads, row);
        case 3: return sum_up<Small<std::int8_t>>(from, threads, row);
        case 4: return sum_up<Summed<Plain<std::uint16_t>>>(from, threads, row);
        case 5: return sum_up<Summed<Plain<std::int16_t>>>(from, threads, row);
        case 6: return sum_up<Summed<Plain<std::uint32_t>>>(from, threads, row);
        case 7: return sum_up<Summed<Plain<std::int32_t>>>(from, threads, row);
        case 8: return sum_up<Summed<Plain<std::uint64_t>>>(from, threads, row);
        case 9: return sum_up<Summed<Plain<std::int64_t>>>(from, threads, row);
        case 10: return sum_up<Summed<Float16>>(from, threads, row);
        case 11: return sum_up<Summed<BFloat16>>(from, threads, row);
        case 12: return sum_up<Summed<Plain<float>>>(from, threads, row);
        case 13: return sum_up<Summed<Plain<double>>>(from, threads, row);
        case 14: return sum_up<Summed<Complex<Float16>>>(from, threads, row);
        case 15: return sum_up<Summed<Complex<Plain<float>>>>(from, threads, row);
        case 16: return sum_up<Summed<Complex<Plain<double>>>>(from, threads, row);
        case 17: return sum_up<Counted<e4m3fn>>(from, threads, row);
        case 18: return sum_up<Counted<e5m2>>(from, threads, row);
        case 19: return sum_up<Counted<e4m3fnuz>>(from, threads, row);
        case 20: return sum_up<Counted<e5m2fnuz>>(from, threads, row);
        case 21: return sum_up<Counted<e8m0fnu>>(from, threads, row);
        case 42: return sum_up<Summed<Complex<BFloat16>>>(from, threads, row);
    }
    row.nan = ~u64(0);  // cpu_stats.py asks only for what is in this list
    return 0;
}

}  // namespace

extern "C" {

// The sum that `bits` is made of; `out` gets the row. `sizes` then `strides`, both in elements, `dims` of each;
// none when the tensor is contiguous.
u64 kernelscope_stats(const char* at, u64 bytes, u64 item, int dims, const std::int64_t* sizes, int code,
                      int threads, double* out) {
    Record row;
    u64 acc;
    if (sizes) {
        const Layout layout(at, item, dims, sizes, sizes + dims);
        acc = sum_up_as(code, {at, bytes, &layout}, threads, row);
    } else {
        acc = sum_up_as(code, {at, bytes, nullptr}, threads, row);
    }
    const bool any = row.finite > 0;
    out[0] = any ? row.low : NAN, out[1] = any ? row.high : NAN, out[2] = any ? row.mean : NAN;
    out[3] = any ? std::sqrt(row.squares / row.finite) : NAN, out[4] = row.l1;
    out[5] = double(row.nan), out[6] = double(row.pos_inf), out[7] = double(row.neg_inf);
    out[8] = double(row.zeros);
    return acc;
}
}
