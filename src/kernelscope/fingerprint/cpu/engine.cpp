// The sum that `bits` is made of, over a CPU tensor's logical row-major bytes: definition.py is the reference.
//
// Compiled by cpu.py at first use, and called through ctypes. All loads may be unaligned. No allocation: what is
// not contiguous in memory passes through a buffer of a few kilobytes on the stack.

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
constexpr int MAX_DIMS = 65;  // cpu.py hands over at most 64; a 16-byte element becomes one more

// Words in one round of the vector loop; buffers are multiples of it, so that only a tensor's end has a tail.
#ifdef KERNELSCOPE_NEON
constexpr int GROUPS = 3, SCALARS = 7, ROUND = 4 * GROUPS + SCALARS;
#else
constexpr int ROUND = 32;
#endif
constexpr u64 BUFFER_WORDS = 32 * ROUND, TILE_WORDS = 4 * ROUND;
constexpr u64 TILE_LINE = 64;              // bytes of one row of memory that a tile takes: a cache line
constexpr u64 PREFETCH_LINES = 12;
constexpr u64 SHORT_RUN = 512, SHORT_COLUMN = 64;  // bytes below which going around the buffer does not pay

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

// --- tensors that are not contiguous ---

// Sizes in elements and strides in bytes, adjacent dimensions merged where memory allows; `item` is at most 8.
struct Layout {
    const char* base;
    u64 item;
    int dims = 0;
    u64 size[MAX_DIMS], stride[MAX_DIMS];

    Layout(const char* at, u64 itemsize, int given, const std::int64_t* sizes, const std::int64_t* strides)
        : base(at), item(itemsize > WORD ? WORD : itemsize) {
        for (int d = 0; d < given; d++) add(sizes[d], strides[d] * itemsize);
        if (itemsize > WORD) add(itemsize / WORD, WORD);
        if (!dims) size[dims] = 1, stride[dims++] = item;
    }

    void add(u64 extent, u64 step) {
        if (extent == 1) return;
        if (dims && stride[dims - 1] == extent * step) {
            size[dims - 1] *= extent;
            stride[dims - 1] = step;
        } else {
            size[dims] = extent;
            stride[dims++] = step;
        }
    }

    u64 inner() const { return size[dims - 1]; }

    u64 numel() const {
        u64 product = 1;
        for (int d = 0; d < dims; d++) product *= size[d];
        return product;
    }

    // The first element of a row, that is of a line along the last dimension; rows are numbered logically.
    const char* row(u64 number) const {
        const char* at = base;
        for (int d = dims - 2; d > 0; d--) {
            at += number % size[d] * stride[d];
            number /= size[d];
        }
        return dims > 1 ? at + number * stride[0] : at;
    }
};

// The same, one row after the other, without a division for each.
struct RowWalk {
    const Layout& layout;
    const char* at;
    u64 index[MAX_DIMS];

    RowWalk(const Layout& l, u64 number) : layout(l), at(l.row(number)) {
        for (int d = l.dims - 2; d >= 0; d--) {
            index[d] = number % l.size[d];
            number /= l.size[d];
        }
    }

    void next() {
        for (int d = layout.dims - 2; d >= 0; d--) {
            at += layout.stride[d];
            if (++index[d] < layout.size[d]) return;
            at -= layout.stride[d] * layout.size[d];
            index[d] = 0;
        }
    }
};

template <class Item>
void gather(char* to, const char* from, u64 count, u64 stride) {
    for (u64 i = 0; i < count; i++) std::memcpy(to + i * sizeof(Item), from + i * stride, sizeof(Item));
}

void copy_run(char* to, const char* from, u64 count, u64 stride, u64 item) {
    if (stride == item) return void(std::memcpy(to, from, count * item));
    if (item == 8) return gather<u64>(to, from, count, stride);
    if (item == 4) return gather<u32>(to, from, count, stride);
    if (item == 2) return gather<std::uint16_t>(to, from, count, stride);
    gather<std::uint8_t>(to, from, count, stride);
}

// Any layout: elements pass through a buffer, in logical order.
u64 sum_gathered(const Layout& layout, u64 begin_word, u64 end_word) {
    alignas(64) char buffer[BUFFER_WORDS * WORD];
    const u64 item = layout.item, inner = layout.inner(), stride = layout.stride[layout.dims - 1];
    const u64 total = layout.numel(), per_word = WORD / item;
    const u64 end = least(end_word * per_word, total);
    u64 element = begin_word * per_word, column = element % inner, acc = 0;
    RowWalk row(layout, element / inner);
    while (element < end) {
        const u64 first = element / per_word;
        const u64 stop = least(end, element + BUFFER_WORDS * per_word);
        char* to = buffer;
        while (element < stop) {
            const u64 count = least(inner - column, stop - element);
            copy_run(to, row.at + column * stride, count, stride, item);
            to += count * item;
            element += count;
            column += count;
            if (column == inner) row.next(), column = 0;
        }
        acc += sum_bytes(buffer, to - buffer, first);
    }
    return acc;
}

// Rows that are contiguous, long, and whole words: read in place.
u64 sum_rows(const Layout& layout, u64 begin_word, u64 end_word) {
    const u64 row_words = layout.inner() * layout.item / WORD;
    u64 acc = 0;
    for (u64 word = begin_word; word < end_word;) {
        const u64 offset = word % row_words, count = least(row_words - offset, end_word - word);
        acc += sum_words(layout.row(word / row_words) + offset * WORD, count, word);
        word += count;
    }
    return acc;
}

// Transposed and channels-last layouts: the last dimension is strided, and another one is contiguous. Walking
// along the last one would use an element of every cache line; a tile takes whole lines and turns them.
template <class Item>
struct Tiles {
    static constexpr u64 ITEM = sizeof(Item), PER_WORD = WORD / ITEM;
    static constexpr u64 HIGH = TILE_WORDS * PER_WORD, WIDE = TILE_LINE / ITEM;  // elements along, and across
    // A row may begin within a word, so that its words reach into the lines of the next tile.
    using Turned = char[WIDE][(TILE_WORDS + 1) * WORD];

    const Layout& layout;
    const int across;  // the contiguous dimension
    const u64 inner, rows, tiles_high, tiles_wide;
    u64 pitch_across = 1;  // in rows

    Tiles(const Layout& l, int contiguous)
        : layout(l), across(contiguous), inner(l.inner()), rows(l.numel() / inner),
          tiles_high((inner + HIGH - 1) / HIGH), tiles_wide((l.size[across] + WIDE - 1) / WIDE) {
        for (int d = l.dims - 2; d > across; d--) pitch_across *= l.size[d];
    }

    u64 sum(int threads) const {
        const u64 tiles = rows / layout.size[across] * tiles_wide * tiles_high;
        u64 acc = in_threads(tiles, threads, [&](u64 begin, u64 end) {
            Turned turned;
            u64 part = 0;
            for (u64 tile = begin; tile < end; tile++) part += sum_tile(turned, tile);
            return part;
        });
        if (inner % PER_WORD) acc += in_threads(rows, threads, [&](u64 b, u64 e) { return sum_borders(b, e); });
        return acc;
    }

    u64 sum_tile(Turned& turned, u64 tile) const {
        const u64 x = tile % tiles_wide * WIDE, y = tile / tiles_wide % tiles_high * HIGH;
        u64 rest = tile / tiles_wide / tiles_high, pitch = 1, first_row = x * pitch_across, acc = 0;
        const char* at = layout.base + x * ITEM + y * layout.stride[layout.dims - 1];
        for (int d = layout.dims - 2; d >= 0; pitch *= layout.size[d--]) {
            if (d == across) continue;
            first_row += rest % layout.size[d] * pitch;
            at += rest % layout.size[d] * layout.stride[d];
            rest /= layout.size[d];
        }
        const u64 columns = least(layout.size[across] - x, WIDE);
        turn(turned, at, least(inner - y, HIGH + PER_WORD), columns, layout.stride[layout.dims - 1]);
        for (u64 c = 0; c < columns; c++) {
            const u64 row_start = (first_row + c * pitch_across) * inner, skip = -row_start % PER_WORD;
            if (y + skip >= inner) continue;
            const u64 words = least(TILE_WORDS, (inner - y - skip) / PER_WORD);
            acc += sum_words(turned[c] + skip * ITEM, words, (row_start + y + skip) / PER_WORD);
        }
        return acc;
    }

    // The words that hold the end of one row and the beginning of the next, or of nothing.
    u64 sum_borders(u64 begin, u64 end) const {
        u64 acc = 0;
        for (u64 row = begin + 1; row <= end; row++)
            if (const u64 word = row * inner / PER_WORD; row * inner % PER_WORD)
                acc += sum_gathered(layout, word, word + 1);
        return acc;
    }

    // Whole words at a time, because a store costs as much as a load. The prefetch pays when the step is larger than
    // what the hardware recognises; one past the end does no harm.
    static void turn(Turned& to, const char* from, u64 lines, u64 columns, u64 step) {
        for (u64 y = 0; y < lines; y += PER_WORD, from += PER_WORD * step) {
            for (u64 k = 0; k < PER_WORD; k++) __builtin_prefetch(from + (PREFETCH_LINES + k) * step);
            const auto one = [&](u64 c, u64 count) {
                u64 word = 0;
                for (u64 k = 0; k < count; k++) {
                    Item item;
                    std::memcpy(&item, from + k * step + c * ITEM, ITEM);
                    word |= u64(item) << (8 * ITEM * k);
                }
                std::memcpy(to[c] + y * ITEM, &word, WORD);
            };
            if (columns == WIDE && lines - y >= PER_WORD)
                for (u64 c = 0; c < WIDE; c++) one(c, PER_WORD);
            else
                for (u64 c = 0; c < columns; c++) one(c, least(lines - y, PER_WORD));
        }
    }
};

int contiguous_dimension(const Layout& layout) {
    for (int d = 0; d < layout.dims - 1; d++)
        if (layout.stride[d] == layout.item) return d;
    return -1;
}

}  // namespace

extern "C" {

u64 kernelscope_sum(const char* at, u64 bytes, int threads) {
    const u64 words = (bytes + WORD - 1) / WORD;
    return in_threads(words, threads, [=](u64 begin, u64 end) {
        return sum_bytes(at + begin * WORD, least(end * WORD, bytes) - begin * WORD, begin);
    });
}

// `sizes` then `strides`, both in elements, `dims` of each; no size is 0.
u64 kernelscope_sum_strided(const char* at, u64 item, int dims, const std::int64_t* sizes, int threads) {
    const Layout layout(at, item, dims, sizes, sizes + dims);
    const u64 row = layout.inner() * layout.item, words = (layout.numel() * layout.item + WORD - 1) / WORD;
    if (row % WORD == 0 && layout.stride[layout.dims - 1] == layout.item && row >= SHORT_RUN)
        return in_threads(words, threads, [&](u64 b, u64 e) { return sum_rows(layout, b, e); });
    const int across = contiguous_dimension(layout);
    if (row < SHORT_COLUMN || across < 0 || layout.stride[layout.dims - 1] == layout.item)
        return in_threads(words, threads, [&](u64 b, u64 e) { return sum_gathered(layout, b, e); });
    if (layout.item == 8) return Tiles<u64>(layout, across).sum(threads);
    if (layout.item == 4) return Tiles<u32>(layout, across).sum(threads);
    if (layout.item == 2) return Tiles<std::uint16_t>(layout, across).sum(threads);
    return Tiles<std::uint8_t>(layout, across).sum(threads);
}
}
