// What a statement of a planned wrapper hands over: an execution and tensors, of which only the addresses are taken.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <vector>

namespace {

// One item for each tensor of a call: on the stack, unless there are many, as an optimizer has.
template <class Item>
class Scratch {
  public:
    explicit Scratch(size_t count) : count_(count) {
        if (count > kFew) many_.resize(count);
    }
    Item* items() { return count_ > kFew ? many_.data() : few_; }

  private:
    static constexpr size_t kFew = 64;
    size_t count_;
    Item few_[kFew];
    std::vector<Item> many_;
};

PyObject* data_ptr_name = nullptr;  // made when the module is

bool number_of(PyObject* given, long long* found) {
    *found = given ? PyLong_AsLongLong(given) : -1;
    return given && !(*found == -1 && PyErr_Occurred());
}

// Forgets an error of ours; Ctrl-C and its like are not ours, and go on.
bool is_interrupted() {
    if (!PyErr_Occurred()) return false;
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return true;
    PyErr_Clear();
    return false;
}

// Whether a torch-function mode of the user's would see what we ask of tensors; an error counts as one.
bool is_seen(PyObject* modes) {
    PyObject* depth = PyObject_CallNoArgs(modes);
    long long number = 1;
    const bool known = number_of(depth, &number);
    Py_XDECREF(depth);
    return !known || number;
}

// The addresses of those tensors that pieces have a `place` of; false where one has lost its memory. Those that are
// known already are not looked up again.
template <class Piece>
bool addresses_of(const std::vector<Piece>& pieces, PyObject* const* tensors, Py_ssize_t count,
                  const char** addresses) {
    for (const Piece& piece : pieces) {
        if (piece.place < 0 || piece.place >= count) return false;
        if (!piece.bytes || addresses[piece.place]) continue;
        PyObject* address = PyObject_CallMethodNoArgs(tensors[piece.place], data_ptr_name);
        long long number;
        const bool has_one = number_of(address, &number);
        Py_XDECREF(address);
        if (!has_one || !number) return false;
        addresses[piece.place] = reinterpret_cast<const char*>(number);
    }
    return true;
}

}  // namespace
