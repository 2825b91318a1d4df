// Rows of statistics as JSON, many at a time and without Python's lock. In Python one of them takes five
// microseconds, and the recorded program waits for that lock meanwhile.

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

constexpr int NUMBERS = 9;           // min, max, mean, std, l1, then counts: NaN, +Inf, -Inf, zeros
constexpr int REALS = 5;             // the first of them
constexpr int LONGEST = 28;          // characters of a number, and a comma
constexpr double EXACT = 1ll << 53;  // integers beyond that are not numbers in JSON

char* put(char* at, double value) {
#if defined(__cpp_lib_to_chars)
    char* end = std::to_chars(at, at + LONGEST - 3, value).ptr;
#else
    char* end = at + std::snprintf(at, LONGEST, "%.17g", value);
#endif
    for (const char* each = at; each < end; each++)
        if (*each == '.' || *each == 'e') return end;
    *end++ = '.';  // so that it is read as a real number
    *end++ = '0';
    return end;
}

char* put(char* at, int64_t value) { return std::to_chars(at, at + LONGEST, value).ptr; }

bool is_plain(const double* row, int64_t numel) {
    double sum = 0;
    for (int i = 0; i < REALS; i++) sum += row[i];
    return std::isfinite(sum) && numel >= 0 && numel <= EXACT && numel != row[5] + row[6] + row[7];
}

}  // namespace

// Writes the texts one after another and where each ends. A row that takes more than numbers has no text.
extern "C" void stat_texts(const double* rows, const int64_t* numels, int64_t count, char* out, int64_t* ends) {
    char* at = out;
    for (int64_t i = 0; i < count; i++, rows += NUMBERS) {
        if (is_plain(rows, numels[i])) {
            *at++ = '[';
            at = put(at, numels[i]);
            for (int j = 0; j < NUMBERS; j++) {
                *at++ = ',';
                at = j < REALS ? put(at, rows[j]) : put(at, static_cast<int64_t>(rows[j]));
            }
            *at++ = ']';
        }
        ends[i] = at - out;
    }
}
