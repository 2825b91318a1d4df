// The sum that `bits` is made of, over a CPU tensor's logical row-major bytes.
//
// Built at first use, and called through ctypes. No allocation: what is not contiguous in memory passes through a
// buffer of a few kilobytes on the stack.

#include "layout.h"
#include "words.h"

namespace {

constexpr u64 BUFFER_WORDS = 32 * ROUND, TILE_WORDS = 4 * ROUND;
constexpr u64 TILE_LINE = 64;              // bytes of one row of memory that a tile takes: a cache line
constexpr u64 PREFETCH_LINES = 12;
constexpr u64 SHORT_RUN = 512, SHORT_COLUMN = 64;  // bytes below which going around the buffer does not pay

// Any layout: elements pass through a buffer, in logical order.
u64 sum_gathered(const Layout& layout, u64 begin_word, u64 end_word) {
    alignas(64) char buffer[BUFFER_WORDS * WORD];
    const u64 per_word = WORD / layout.item, end = least(end_word * per_word, layout.numel());
    u64 acc = 0;
    Cursor cursor(layout, begin_word * per_word);
    for (u64 element = begin_word * per_word; element < end; element += BUFFER_WORDS * per_word) {
        const u64 count = least(end - element, BUFFER_WORDS * per_word);
        cursor.copy(buffer, count);
        acc += sum_bytes(buffer, count * layout.item, element / per_word);
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
