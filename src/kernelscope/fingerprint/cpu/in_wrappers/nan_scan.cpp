// Looks for NaN and infinities in what a launch left, and keeps what the next one will overwrite.
//
// A Look is called with an execution and tensors, of which it takes nothing but the addresses. What is out of the
// ordinary goes to `carefully`, a Python function that is given the same: a mode that would see our calls, or a
// tensor without memory. `found` is called when there is something, with the execution and the tensors.

#include "given_tensors.h"

#include <structmember.h>

#include "../words.h"

namespace {

constexpr u64 kLong = 256 << 10;  // bytes: from here on the GIL is given up, and threads share the work
int threads_now = 1;

enum { NAN_SEEN = 1, POS_INF_SEEN = 2, NEG_INF_SEEN = 4 };

struct Level {
    u64 count, step;  // step: in bytes
};

struct Piece {
    Py_ssize_t place;           // among the tensors
    u64 bytes;                  // of one run, which is contiguous
    int kind;                   // of a copy: unused
    char* into;                 // of a scan: unused
    std::vector<Level> levels;  // around the run, the innermost one last
    u64 all;                    // bytes of all runs together

    // body(offset) for each run.
    template <class Body>
    void for_each_run(const Body& body, size_t level = 0, u64 offset = 0) const {
        if (level == levels.size()) return body(offset);
        for (u64 i = 0; i < levels[level].count; i++) for_each_run(body, level + 1, offset + i * levels[level].step);
    }
};

struct Look {
    PyObject_HEAD
    vectorcallfunc call;
    std::vector<Piece>*scans, *copies;
    PyObject *modes, *carefully, *found;
    int wanted;
};

template <class Word, Word EXPONENT, bool HAS_INFINITY>
int seen_in(const char* at, u64 bytes, int threads) {
    constexpr Word SIGN = Word(1) << (8 * sizeof(Word) - 1), SIZE = Word(~SIGN);
    const u64 count = bytes / sizeof(Word);
    const auto any = [=](u64 begin, u64 end) -> u64 {
        Word suspects = 0;
        for (u64 i = begin; i < end; i++) {
            Word word;
            std::memcpy(&word, at + i * sizeof(Word), sizeof(Word));
            suspects |= Word((word & EXPONENT) == EXPONENT);
        }
        return suspects;
    };
    if (!(threads > 1 ? in_threads(count, threads, any) : any(0, count))) return 0;
    int seen = 0;
    for (u64 i = 0; i < count; i++) {
        Word word;
        std::memcpy(&word, at + i * sizeof(Word), sizeof(Word));
        const Word size = word & SIZE;
        if (size < EXPONENT) continue;
        if (!HAS_INFINITY) seen |= size == SIZE ? NAN_SEEN : 0;
        else if (size > EXPONENT) seen |= NAN_SEEN;
        else seen |= word & SIGN ? NEG_INF_SEEN : POS_INF_SEEN;
    }
    return seen;
}

int seen_as(int kind, const char* at, u64 bytes, int threads) {  // kinds as nan_scan.py of the GPU has them
    switch (kind) {
        case 0: return seen_in<u32, 0x7f800000u, true>(at, bytes, threads);
        case 1: return seen_in<std::uint16_t, 0x7c00, true>(at, bytes, threads);
        case 2: return seen_in<std::uint16_t, 0x7f80, true>(at, bytes, threads);
        case 3: return seen_in<u64, 0x7ff0000000000000ull, true>(at, bytes, threads);
        case 4: return seen_in<std::uint8_t, 0x7c, true>(at, bytes, threads);
        case 5: return seen_in<std::uint8_t, 0x78, false>(at, bytes, threads);
    }
    return NAN_SEEN | POS_INF_SEEN | NEG_INF_SEEN;  // the caller looks itself
}

int seen_in_runs(const Piece& piece, const char* at, int threads) {
    int seen = 0;
    piece.for_each_run([&](u64 offset) { seen |= seen_as(piece.kind, at + offset, piece.bytes, threads); });
    return seen;
}

PyObject* look(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
    auto* self = reinterpret_cast<Look*>(object);
    const Py_ssize_t count = PyVectorcall_NARGS(nargsf) - 1;
    Scratch<const char*> found_addresses(count < 0 ? 0 : size_t(count));
    const char** addresses = found_addresses.items();
    std::fill_n(addresses, count < 0 ? 0 : count, nullptr);
    const size_t plain = nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET;
    if (is_seen(self->modes) || names || count < 0 ||
        !addresses_of(*self->copies, args + 1, count, addresses) ||
        !addresses_of(*self->scans, args + 1, count, addresses))
        return is_interrupted() ? nullptr : PyObject_Vectorcall(self->carefully, args, plain, names);
    for (const Piece& piece : *self->copies) {
        const char* from = addresses[piece.place];
        piece.for_each_run([&](u64 offset) { std::memcpy(piece.into + offset, from + offset, piece.bytes); });
    }
    int seen = 0;
    for (const Piece& piece : *self->scans) {
        if (piece.all < kLong) {
            seen |= seen_in_runs(piece, addresses[piece.place], 1);
        } else {
            int here;
            Py_BEGIN_ALLOW_THREADS
            here = seen_in_runs(piece, addresses[piece.place], piece.bytes < kLong ? 1 : threads_now);
            Py_END_ALLOW_THREADS
            seen |= here;
        }
    }
    if (seen & self->wanted) return PyObject_Vectorcall(self->found, args, plain, names);
    Py_RETURN_NONE;
}

bool read_pieces(PyObject* given, std::vector<Piece>* into) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++) {
        Piece piece{};
        unsigned long long bytes, address;
        PyObject* levels;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, i), "nKiKO!", &piece.place, &bytes, &piece.kind, &address,
                              &PyTuple_Type, &levels))
            return false;
        piece.bytes = piece.all = bytes, piece.into = reinterpret_cast<char*>(address);
        for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(levels); d++) {
            unsigned long long count, step;
            if (!PyArg_ParseTuple(PyTuple_GET_ITEM(levels, d), "KK", &count, &step)) return false;
            piece.levels.push_back({count, step});
            piece.all *= count;
        }
        into->push_back(piece);
    }
    return true;
}

void dealloc(PyObject* object) {
    auto* self = reinterpret_cast<Look*>(object);
    PyObject_GC_UnTrack(object);
    delete self->scans;
    delete self->copies;
    Py_CLEAR(self->modes);
    Py_CLEAR(self->carefully);
    Py_CLEAR(self->found);
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
    auto* self = reinterpret_cast<Look*>(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->modes);
    Py_VISIT(self->carefully);
    Py_VISIT(self->found);
    return 0;
}

int clear(PyObject* object) {  // they are called until the end
    (void)object;
    return 0;
}

// Look(scans, copies, wanted, modes, carefully, found); a scan or copy: place, bytes, kind, where to, levels
PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject *scans, *copies, *modes, *carefully, *found;
    int wanted;
    if (!PyArg_ParseTuple(args, "O!O!iOOO", &PyTuple_Type, &scans, &PyTuple_Type, &copies, &wanted, &modes,
                          &carefully, &found))
        return nullptr;
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    auto* self = reinterpret_cast<Look*>(object);
    self->call = look;
    self->scans = new std::vector<Piece>();
    self->copies = new std::vector<Piece>();
    self->wanted = wanted;
    self->modes = Py_NewRef(modes);
    self->carefully = Py_NewRef(carefully);
    self->found = Py_NewRef(found);
    if (!read_pieces(scans, self->scans) || !read_pieces(copies, self->copies)) {
        Py_DECREF(object);
        return nullptr;
    }
    return object;
}

PyObject* use_threads(PyObject*, PyObject* given) {
    threads_now = int(PyLong_AsLong(given));
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_NONE;
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Look, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec spec = {"kernelscope_nan_scan.Look", sizeof(Look), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};
PyMethodDef methods[] = {{"use_threads", use_threads, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "kernelscope_nan_scan", nullptr, -1, methods, nullptr, nullptr, nullptr,
                      nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_kernelscope_nan_scan() {
    data_ptr_name = PyUnicode_InternFromString("data_ptr");
    PyObject* made = PyModule_Create(&module);
    if (!made || !data_ptr_name) return nullptr;
    PyObject* type = PyType_FromSpec(&spec);
    if (!type || PyModule_AddObject(made, "Look", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(made);
        return nullptr;
    }
    return made;
}
