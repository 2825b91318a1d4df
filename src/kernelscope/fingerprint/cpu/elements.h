// Eight elements of any dtype of two bytes or more, as doubles.

#pragma once

#include <cmath>

#include "words.h"

namespace {

constexpr u64 AT_ONCE = 8;  // elements in one step, whatever the width of the machine's vectors

template <class T>
struct Vectors8 {
    typedef T Type __attribute__((vector_size(AT_ONCE * sizeof(T))));
};
template <class T>
using Of8 = typename Vectors8<T>::Type;
using Numbers = Of8<double>;

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

}  // namespace
