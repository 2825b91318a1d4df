// Planned fingerprints of CPU tensors: one call takes all that a statement of a wrapper hands over.
//
// A Take is called with an execution and tensors. It hashes the tensors, with statistics where they are wanted, and
// writes the rows of the host's log (host_log.py), whose memory it looks up while it holds the GIL. What is out of the
// ordinary goes to `carefully`, a Python function that is given the same. The functions that read memory are those of
// bits.cpp and stats.cpp, which are loaded already.

#include "given_tensors.h"

#include <structmember.h>

#include <array>
#include <cstdint>
#include <string>

namespace {

using u64 = std::uint64_t;
using i64 = std::int64_t;

constexpr int kRowLength = 9;
using Row = std::array<double, kRowLength>;
// definition.py is the reference.
constexpr u64 MIX_FIRST = 0xC2B2AE3D27D4EB4F, MIX_SECOND = 0xBF58476D1CE4E5B9;

using Sum = u64 (*)(const char*, u64, int);
using SumStrided = u64 (*)(const char*, u64, int, const i64*, int);
using SumWithStats = u64 (*)(const char*, u64, u64, int, const i64*, int, int, double*);

struct Piece {
    Py_ssize_t place;     // among the tensors
    i64 row;              // of the execution
    u64 bytes, item;
    int dims, code;       // code: of the dtype, for statistics; negative: bits alone
    std::string layout;   // sizes, then strides; empty: contiguous
    u64 salt;
    bool is_large;        // the GIL is given up, and threads share the work
};

bool has_forked = false;  // an OpenMP runtime that was used before a fork waits forever for its threads in the child
u64 bytes_per_thread = 1;

struct Take {
    PyObject_HEAD
    vectorcallfunc call;
    std::vector<Piece>* pieces;
    Sum sum;
    SumStrided sum_strided;
    SumWithStats sum_with_stats;
    PyObject *modes, *carefully, *log, *threads;
};

PyObject *forgotten_name, *bits_name, *stats_name;

u64 mix(u64 h) {
    h *= MIX_FIRST;
    h ^= h >> 32;
    h *= MIX_SECOND;
    return h ^ h >> 29;
}

u64 sum_of(const Take* self, const Piece& piece, const char* at, int threads, double* stats) {
    const i64* layout = piece.layout.empty() ? nullptr : reinterpret_cast<const i64*>(piece.layout.data());
    if (piece.code >= 0)
        return self->sum_with_stats(at, piece.bytes, piece.item, piece.dims, layout, piece.code, threads, stats);
    if (layout) return self->sum_strided(at, piece.item, piece.dims, layout, threads);
    return self->sum(at, piece.bytes, threads);
}

// How many threads a large piece is shared by; 0 where that could not be found out.
int threads_for(const Take* self, const Piece& piece) {
    PyObject* answer = PyObject_CallNoArgs(self->threads);
    long long number;
    const bool known = number_of(answer, &number);
    Py_XDECREF(answer);
    if (!known) return 0;
    const u64 most = piece.bytes / bytes_per_thread;
    return has_forked || number < 1 || most < 1 ? 1 : int(u64(number) < most ? u64(number) : most);
}

// An array of the log, and where the rows of this execution begin in it.
struct Rows {
    Py_buffer view{};
    bool is_there = false;

    Rows(PyObject* log, PyObject* name) {
        PyObject* values = PyObject_GetAttr(log, name);
        is_there = values && PyObject_GetBuffer(values, &view, PyBUF_WRITABLE) == 0;
        Py_XDECREF(values);
    }
    ~Rows() {
        if (is_there) PyBuffer_Release(&view);
    }
    bool has(i64 end) const { return is_there && end * 8 <= view.len; }
};

// Nothing here runs Python code, so that the log stays as it is meanwhile. Rows that are not kept any more are left out.
bool write(const Take* self, i64 first, const u64* totals, const Row* stats) {
    PyObject* known = PyObject_GetAttr(self->log, forgotten_name);
    long long forgotten;
    const bool is_known = number_of(known, &forgotten);
    Py_XDECREF(known);
    if (!is_known) return false;
    bool any_stats = false;
    {
        const Rows rows(self->log, bits_name);
        auto* bits = static_cast<u64*>(rows.view.buf);
        u64 n = 0;
        for (const Piece& piece : *self->pieces) {
            const i64 at = first + piece.row - forgotten;
            if (!rows.has(at + 1)) return false;
            if (at >= 0) bits[at] = mix(totals[n] ^ piece.salt);
            any_stats |= piece.code >= 0;
            n++;
        }
    }
    if (!any_stats) return true;
    const Rows rows(self->log, stats_name);
    auto* values = static_cast<double*>(rows.view.buf);
    u64 n = 0;
    for (const Piece& piece : *self->pieces) {
        const i64 at = first + piece.row - forgotten;
        if (piece.code >= 0 && !rows.has((at + 1) * kRowLength)) return false;
        for (int i = 0; piece.code >= 0 && at >= 0 && i < kRowLength; i++)
            values[at * kRowLength + i] = stats[n][i];
        n++;
    }
    return true;
}

bool taken(const Take* self, PyObject* const* args, Py_ssize_t count) {
    long long first;
    if (is_seen(self->modes) || count < 0 || !PyTuple_Check(args[0]) || !PyTuple_GET_SIZE(args[0]) ||
        !number_of(PyTuple_GET_ITEM(args[0], 0), &first))
        return false;
    Scratch<const char*> found_addresses{size_t(count)};
    Scratch<u64> found_totals(self->pieces->size());
    Scratch<Row> found_stats(self->pieces->size());
    const char** addresses = found_addresses.items();
    u64* totals = found_totals.items();
    Row* stats = found_stats.items();
    std::fill_n(addresses, count, nullptr);
    if (!addresses_of(*self->pieces, args + 1, count, addresses)) return false;
    u64 n = 0;
    for (const Piece& piece : *self->pieces) {
        const char* at = addresses[piece.place];
        if (!piece.is_large) {
            totals[n] = sum_of(self, piece, at, 1, stats[n].data());
        } else {
            const int threads = threads_for(self, piece);
            if (!threads) return false;
            Py_BEGIN_ALLOW_THREADS
            totals[n] = sum_of(self, piece, at, threads, stats[n].data());
            Py_END_ALLOW_THREADS
        }
        n++;
    }
    return write(self, first, totals, stats);
}

PyObject* take(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
    auto* self = reinterpret_cast<Take*>(object);
    const Py_ssize_t given = PyVectorcall_NARGS(nargsf);
    if (!names && given > 0 && taken(self, args, given - 1)) Py_RETURN_NONE;
    return is_interrupted() ? nullptr : PyObject_Vectorcall(self->carefully, args, given, names);
}

PyObject* forked(PyObject*, PyObject*) {
    has_forked = true;
    Py_RETURN_NONE;
}

PyObject* share(PyObject*, PyObject* given) {
    long long number;
    if (!number_of(given, &number)) return nullptr;
    bytes_per_thread = number < 1 ? 1 : u64(number);
    Py_RETURN_NONE;
}

bool read_pieces(PyObject* given, std::vector<Piece>* into) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++) {
        Piece piece{};
        const char* layout;
        Py_ssize_t length;
        unsigned long long bytes, item, salt;
        long long row;
        int is_large;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, i), "nLKKiiy#Kp", &piece.place, &row, &bytes, &item, &piece.dims,
                              &piece.code, &layout, &length, &salt, &is_large))
            return false;
        piece.row = row, piece.bytes = bytes, piece.item = item, piece.salt = salt, piece.is_large = is_large != 0;
        piece.layout.assign(layout, size_t(length));
        into->push_back(piece);
    }
    return true;
}

void dealloc(PyObject* object) {
    auto* self = reinterpret_cast<Take*>(object);
    PyObject_GC_UnTrack(object);
    delete self->pieces;
    Py_CLEAR(self->modes);
    Py_CLEAR(self->carefully);
    Py_CLEAR(self->log);
    Py_CLEAR(self->threads);
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
    auto* self = reinterpret_cast<Take*>(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->modes);
    Py_VISIT(self->carefully);
    Py_VISIT(self->log);
    Py_VISIT(self->threads);
    return 0;
}

int clear(PyObject* object) {  // they are called until the end
    (void)object;
    return 0;
}

// Take(pieces, sum, sum_strided, sum_with_stats, modes, carefully, log, threads); functions are addresses, 0: none
PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject *pieces, *modes, *carefully, *log, *threads;
    unsigned long long sum, sum_strided, sum_with_stats;
    if (!PyArg_ParseTuple(args, "O!KKKOOOO", &PyTuple_Type, &pieces, &sum, &sum_strided, &sum_with_stats, &modes,
                          &carefully, &log, &threads))
        return nullptr;
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    auto* self = reinterpret_cast<Take*>(object);
    self->call = take;
    self->pieces = new std::vector<Piece>();
    self->sum = reinterpret_cast<Sum>(sum);
    self->sum_strided = reinterpret_cast<SumStrided>(sum_strided);
    self->sum_with_stats = reinterpret_cast<SumWithStats>(sum_with_stats);
    self->modes = Py_NewRef(modes);
    self->carefully = Py_NewRef(carefully);
    self->log = Py_NewRef(log);
    self->threads = Py_NewRef(threads);
    if (!read_pieces(pieces, self->pieces)) {
        Py_DECREF(object);
        return nullptr;
    }
    return object;
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Take, call), READONLY, nullptr},
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
PyType_Spec spec = {"kernelscope_planned.Take", sizeof(Take), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};
PyMethodDef methods[] = {{"forked", forked, METH_NOARGS, nullptr},
                         {"share", share, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "kernelscope_planned", nullptr, -1, methods, nullptr, nullptr, nullptr,
                      nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_kernelscope_planned() {
    data_ptr_name = PyUnicode_InternFromString("data_ptr");
    forgotten_name = PyUnicode_InternFromString("_forgotten");
    bits_name = PyUnicode_InternFromString("_bits");
    stats_name = PyUnicode_InternFromString("_stats");
    PyObject* made = PyModule_Create(&module);
    if (!made || !data_ptr_name || !forgotten_name || !bits_name || !stats_name) return nullptr;
    PyObject* type = PyType_FromSpec(&spec);
    if (!type || PyModule_AddObject(made, "Take", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(made);
        return nullptr;
    }
    return made;
}
