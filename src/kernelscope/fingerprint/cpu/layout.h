// Tensors that are not contiguous in memory: their elements in logical order.

#pragma once

#include "words.h"

namespace {

constexpr int MAX_DIMS = 65;  // Python hands over at most 64; a 16-byte element becomes one more

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

// Copies elements in logical order, without a division for each.
struct Cursor {
    const Layout& layout;
    const char* row;
    u64 column, index[MAX_DIMS];

    Cursor(const Layout& l, u64 element) : layout(l), column(element % l.inner()) {
        u64 number = element / l.inner();
        row = l.row(number);
        for (int d = l.dims - 2; d >= 0; d--) {
            index[d] = number % l.size[d];
            number /= l.size[d];
        }
    }

    __attribute__((always_inline)) void next_row() {
        column = 0;
        for (int d = layout.dims - 2; d >= 0; d--) {
            row += layout.stride[d];
            if (++index[d] < layout.size[d]) return;
            row -= layout.stride[d] * layout.size[d];
            index[d] = 0;
        }
    }

    __attribute__((always_inline)) void copy(char* to, u64 elements) {
        const u64 item = layout.item, inner = layout.inner(), stride = layout.stride[layout.dims - 1];
        while (elements) {
            const u64 count = least(inner - column, elements);
            copy_run(to, row + column * stride, count, stride, item);
            to += count * item;
            elements -= count;
            column += count;
            if (column == inner) next_row();
        }
    }
};

}  // namespace
