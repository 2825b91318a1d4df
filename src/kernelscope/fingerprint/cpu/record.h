// The numbers of one stretch of a tensor, and how those of two are merged.

#pragma once

#include <cmath>
#include <limits>

#include "words.h"

namespace {

constexpr u64 BLOCK_BYTES = 16 << 10;
constexpr double INF = std::numeric_limits<double>::infinity();

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

}  // namespace
