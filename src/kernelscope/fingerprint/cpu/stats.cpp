// `bits` and the statistics of a CPU tensor in one pass: stats.py says what a row holds, docs/fingerprint.md
// what the numbers mean.
//
// A tensor is cut into blocks that stay in the first cache, in logical order. Each block is hashed and then
// summed up around one of its own elements; blocks are merged in order into chunks, chunks in order into the
// row. Where the cuts lie depends on the size alone, so that the number of threads changes nothing.

#include <vector>

#include "layout.h"
#include "one_byte_blocks.h"
#include "wide_blocks.h"
#include "words.h"

namespace {

constexpr u64 CHUNK_BLOCKS = 4, MOST_CHUNKS = 8192;

// The logical bytes from `begin` on: in place where they are contiguous, otherwise through the buffer.
struct Blocks {
    const char* base;
    u64 bytes;
    const Layout* layout;  // none: contiguous

    const char* fetch(char* buffer, u64 begin, u64 size) const {
        if (!layout) return base + begin;
        Cursor(*layout, begin / layout->item).copy(buffer, size / layout->item);
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
    row.nan = ~u64(0);  // stats.py passes only codes of this list
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
