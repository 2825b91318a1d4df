// Whole numbers as texts of the same width, so that SQLite finds each of them in one long value.

#include <Python.h>

#include <cstdint>
#include <cstring>

namespace {

constexpr Py_ssize_t DECIMAL_WIDTH = 20;  // of the longest: a sign and 19 digits

void put_decimal(char* at, int64_t number) {
    std::memset(at, ' ', DECIMAL_WIDTH);
    char* end = at + DECIMAL_WIDTH;
    uint64_t rest = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    do {
        *--end = static_cast<char>('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0) *--end = '-';
}

// decimals(buffer of signed 64-bit numbers): their texts, one after another. Python's lock is free meanwhile.
PyObject* decimals(PyObject*, PyObject* given) {
    Py_buffer numbers;
    if (PyObject_GetBuffer(given, &numbers, PyBUF_C_CONTIGUOUS) < 0) return nullptr;
    const Py_ssize_t count = numbers.len / 8;
    PyObject* text = PyBytes_FromStringAndSize(nullptr, count * DECIMAL_WIDTH);
    if (text) {
        char* at = PyBytes_AS_STRING(text);
        const char* from = static_cast<const char*>(numbers.buf);
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++, at += DECIMAL_WIDTH) {
            int64_t number;
            std::memcpy(&number, from + 8 * i, 8);
            put_decimal(at, number);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&numbers);
    return text;
}

PyMethodDef functions[] = {
    {"decimals", decimals, METH_O, "The texts of signed 64-bit numbers, all of the same width."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace
