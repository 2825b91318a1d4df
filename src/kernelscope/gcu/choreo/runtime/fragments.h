// Small matrices that `mma` multiplies. They compute in double precision and round when they are stored.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "element_types.h"
#include "failures.h"

namespace choreo {

class fragment {
 public:
  void fill(double value) {
    start_ = value;
    values_.assign(values_.size(), value);
  }
  template <class T>
  void load(const T* from, int64_t rows, int64_t columns, int64_t down, int64_t across) {
    shape(rows, columns);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        values_[i * columns + j] = static_cast<double>(from[i * down + j * across]);
  }
  // this += a · b, where either may lie the other way round
  void multiply(const fragment& a, const fragment& b, bool a_turned, bool b_turned, const char* message) {
    const int64_t rows = a_turned ? a.columns_ : a.rows_, depth = a_turned ? a.rows_ : a.columns_;
    const int64_t columns = b_turned ? b.rows_ : b.columns_;
    const bool fits = depth == (b_turned ? b.columns_ : b.rows_) && depth > 0;
    if (fits && rows_ == 0) shape(rows, columns);
    check(fits && rows_ == rows && columns_ == columns, message);
    if (!fits || rows_ != rows || columns_ != columns) return;
    std::vector<double> sum = values_;  // this may be a or b
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < depth; ++k) {
        const double x = a_turned ? a.values_[k * rows + i] : a.values_[i * depth + k];
        for (int64_t j = 0; j < columns; ++j)
          sum[i * columns + j] += x * (b_turned ? b.values_[j * depth + k] : b.values_[k * columns + j]);
      }
    values_ = std::move(sum);
  }
  template <class T>
  void store(T* to, int64_t rows, int64_t columns, int64_t down, int64_t across, const char* message) {
    if (rows_ == 0) shape(rows, columns);
    check(rows_ == rows && columns_ == columns, message);
    if (rows_ != rows || columns_ != columns) return;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        to[i * down + j * across] = rounded<T>(values_[i * columns + j]);
  }
  template <class F>
  void apply(const F& change) {
    start_ = change(start_);
    for (double& each : values_) each = change(each);
  }

 private:
  void shape(int64_t rows, int64_t columns) {
    rows_ = rows;
    columns_ = columns;
    values_.assign(static_cast<std::size_t>(rows * columns), start_);
  }
  template <class T>
  static T rounded(double value) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<int64_t>(value));  // wraps, as other integers do
    else if constexpr (std::is_same_v<T, double>)
      return value;
    else
      return static_cast<T>(static_cast<float>(value));
  }
  int64_t rows_ = 0, columns_ = 0;  // 0: not known yet
  double start_ = 0.0;
  std::vector<double> values_;
};

}  // namespace choreo
