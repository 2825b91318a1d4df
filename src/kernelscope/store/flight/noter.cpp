// Notes launches in the flight recorder's ring. In Python the same takes four times as long.
//
// A Noter is called with a compact call (24 bytes: steady site, graph call, start). It does what PlainNotes
// in noting.py does, with the same dictionaries; what is rare, it leaves to Python.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <structmember.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "decimals.h"
#include "numbers.h"

namespace {

using WriteValue = int (*)(void*, uint64_t, uint32_t, unsigned);  // cuStreamWriteValue32

struct Queued {
    int64_t graph_call, number, stream;
};

struct Noter {
    PyObject_HEAD
    vectorcallfunc call;
    Py_buffer map;
    PyObject* flight;
    PyObject* next_cell;
    PyObject* known;      // by number of a steady site: its site, and what its cells begin with
    PyObject* running;    // by graph call: its newest call + 1
    PyObject* abandoned;  // calls whose cell is another's
    PyObject* devices;    // of sites on a GPU
    PyObject* stream_of;  // the current stream of a device; None where there is no GPU
    PyObject* mark;       // of a stream and a call; gives the stream's number, counted from 1
    PyObject* numbers;    // of streams that have been marked before, counted from 0
    PyObject* marked;     // by stream: the newest call + 1
    std::vector<Queued>* queued;  // of each graph call that runs, of which there are few: its newest launch on a GPU
    PyObject* last_stream;        // that was marked; its handle and its number, counted from 1
    int64_t last_handle, last_place;
    WriteValue write;
    uint64_t words;       // address of the streams' words
    Py_ssize_t header, cell, state_at, stream_at;
    uint64_t mask;
    unsigned char left;
};

PyObject *limit_name, *make_room_name, *meet_noted_name;

unsigned char* cell_of(Noter* self, int64_t number) {
    return static_cast<unsigned char*>(self->map.buf) + self->header +
           static_cast<Py_ssize_t>((number - 1) & self->mask) * self->cell;
}

// 1: its cell is still its own; -1 with an exception.
int owns_cell(Noter* self, int64_t number) {
    if (!PySet_GET_SIZE(self->abandoned)) return 1;
    PyObject* index = PyLong_FromLongLong(number - 1);
    if (!index) return -1;
    const int found = PySet_Contains(self->abandoned, index);
    Py_DECREF(index);
    return found < 0 ? -1 : !found;
}

// Makes this the last stream; its place stays 0 until it can be marked without Python.
bool knows_stream(Noter* self, int64_t handle) {
    if (self->last_place && self->last_handle == handle) return true;
    PyObject* stream = PyLong_FromLongLong(handle);
    if (!stream) return false;
    Py_XSETREF(self->last_stream, stream);
    self->last_handle = handle;
    PyObject* known = self->write ? PyDict_GetItemWithError(self->numbers, stream) : nullptr;
    self->last_place = known ? number_of(known) + 1 : 0;
    return !PyErr_Occurred();
}

bool mark_queued(Noter* self, const Queued& queued) {
    if (!knows_stream(self, queued.stream)) return false;
    int64_t place = self->last_place;
    bool done;
    if (place) {
        // After a fault this fails, and the program hears of the fault from its own next call.
        self->write(reinterpret_cast<void*>(queued.stream), self->words + 4 * (place - 1),
                    static_cast<uint32_t>(queued.number), 0);
        PyObject* number = PyLong_FromLongLong(queued.number);
        done = number && PyDict_SetItem(self->marked, self->last_stream, number) == 0;
        Py_XDECREF(number);
    } else {
        PyObject* told = PyObject_CallFunction(self->mark, "LL", static_cast<long long>(queued.stream),
                                               static_cast<long long>(queued.number - 1));
        place = number_of(told);
        done = told && !PyErr_Occurred();
        Py_XDECREF(told);
    }
    if (!done || PyErr_Occurred()) return false;
    const int owns = owns_cell(self, queued.number);
    if (owns > 0) cell_of(self, queued.number)[self->stream_at] = static_cast<unsigned char>(place);
    return owns >= 0;
}

bool take_queued(Noter* self, int64_t graph_call) {
    auto& all = *self->queued;
    for (size_t i = all.size(); i--;) {
        if (all[i].graph_call != graph_call) continue;
        const Queued queued = all[i];
        all[i] = all.back();
        all.pop_back();
        return mark_queued(self, queued);
    }
    return true;
}

bool queue(Noter* self, PyObject* site, int64_t graph_call, int64_t number) {
    PyObject* device = PyDict_GetItemWithError(self->devices, site);
    if (!device) return !PyErr_Occurred();
    PyObject* stream = PyObject_CallOneArg(self->stream_of, device);
    const int64_t handle = number_of(stream);
    Py_XDECREF(stream);
    if (handle == -1 && PyErr_Occurred()) return false;
    self->queued->push_back({graph_call, number, handle});
    return true;
}

bool has_room(Noter* self, int64_t number) {
    PyObject* limit = PyObject_GetAttr(self->flight, limit_name);
    const int64_t most = number_of(limit);
    Py_XDECREF(limit);
    if (PyErr_Occurred()) return false;
    if (number <= most) return true;
    PyObject* make_room = PyObject_GetAttr(self->flight, make_room_name);
    PyObject* made = make_room ? PyObject_CallFunction(make_room, "L", static_cast<long long>(number)) : nullptr;
    Py_XDECREF(make_room);
    Py_XDECREF(made);
    return made != nullptr;
}

// -1 with an exception.
int64_t next_call(Noter* self) {
    if (Py_TYPE(self->next_cell) == numbers_type) return reinterpret_cast<Numbers*>(self->next_cell)->next++;
    PyObject* numbered = PyObject_CallNoArgs(self->next_cell);
    const int64_t number = numbered && PyTuple_Check(numbered) ? number_of(PyTuple_GetItem(numbered, 0)) : -1;
    Py_XDECREF(numbered);
    if (number < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a pair was expected");
    return number;
}

bool write_cell(Noter* self, PyObject* found, int64_t call, int64_t graph_call, uint64_t start) {
    if (!PyTuple_Check(found) || PyTuple_GET_SIZE(found) != 2) {
        PyErr_SetString(PyExc_TypeError, "a pair was expected");
        return false;
    }
    if (!has_room(self, call) || !take_queued(self, graph_call)) return false;
    PyObject* key = PyLong_FromLongLong(graph_call);
    PyObject* number = PyLong_FromLongLong(call);
    // Before the cell: what the ring shows is over or stands there.
    const bool stands = key && number && PyDict_SetItem(self->running, key, number) == 0;
    Py_XDECREF(key);
    Py_XDECREF(number);
    if (!stands) return false;
    const uint32_t site = static_cast<uint32_t>(number_of(PyTuple_GET_ITEM(found, 0)));
    const uint64_t begins = static_cast<uint64_t>(number_of(PyTuple_GET_ITEM(found, 1)));
    const int32_t of_graph = static_cast<int32_t>(graph_call);
    if (PyErr_Occurred()) return false;
    unsigned char* cell = cell_of(self, call);
    std::memcpy(cell, &start, 8);
    std::memcpy(cell + 8, &site, 4);
    std::memcpy(cell + 12, &of_graph, 4);
    std::memcpy(cell + 16, &begins, 8);
    std::atomic_thread_fence(std::memory_order_release);  // the call is written last
    std::memcpy(cell + 24, &call, 8);
    return self->stream_of == Py_None || queue(self, PyTuple_GET_ITEM(found, 0), graph_call, call);
}

PyObject* note(PyObject* object, PyObject* const* args, size_t nargsf, PyObject*) {
    auto* self = reinterpret_cast<Noter*>(object);
    if (PyVectorcall_NARGS(nargsf) != 1 || !PyBytes_Check(args[0]) || PyBytes_GET_SIZE(args[0]) != 24) {
        PyErr_SetString(PyExc_TypeError, "a note is 24 bytes");
        return nullptr;
    }
    int64_t steady, graph_call;
    uint64_t start;
    const char* entry = PyBytes_AS_STRING(args[0]);
    std::memcpy(&steady, entry, 8);
    std::memcpy(&graph_call, entry + 8, 8);
    std::memcpy(&start, entry + 16, 8);
    PyObject* key = PyLong_FromLongLong(steady);
    if (!key) return nullptr;
    PyObject* found = Py_XNewRef(PyDict_GetItemWithError(self->known, key));
    if (!found && !PyErr_Occurred()) found = PyObject_CallMethodOneArg(self->flight, meet_noted_name, key);
    Py_DECREF(key);
    const int64_t call = found ? next_call(self) : -1;
    const bool written = call > 0 && write_cell(self, found, call, graph_call, start);
    Py_XDECREF(found);
    if (!written) return nullptr;
    Py_RETURN_NONE;
}

// replayed(cells, first, start, graph call, stream): calls from number `first` on, which are over.
PyObject* replayed(PyObject* object, PyObject* args) {
    auto* self = reinterpret_cast<Noter*>(object);
    const char* cells;
    Py_ssize_t length;
    long long first;
    unsigned long long start;
    int graph_call;
    unsigned char stream;
    if (!PyArg_ParseTuple(args, "y#LKib", &cells, &length, &first, &start, &graph_call, &stream)) return nullptr;
    for (int64_t number = first; length >= self->cell; number++, cells += self->cell, length -= self->cell) {
        unsigned char* cell = cell_of(self, number);
        std::memcpy(cell + 8, cells + 8, self->cell - 8);
        std::memcpy(cell, &start, 8);
        std::memcpy(cell + 12, &graph_call, 4);
        cell[self->stream_at] = stream;
        std::atomic_thread_fence(std::memory_order_release);
        std::memcpy(cell + 24, &number, 8);
    }
    Py_RETURN_NONE;
}

PyObject* ended(PyObject* object, PyObject* key) {
    auto* self = reinterpret_cast<Noter*>(object);
    PyObject* found = Py_XNewRef(PyDict_GetItemWithError(self->running, key));
    if (!found) {
        if (PyErr_Occurred()) return nullptr;
        Py_RETURN_NONE;
    }
    const int64_t number = number_of(found), graph_call = number_of(key);
    Py_DECREF(found);
    if (PyErr_Occurred() || PyDict_DelItem(self->running, key) < 0) return nullptr;
    if (!take_queued(self, graph_call)) return nullptr;
    const int owns = owns_cell(self, number);
    if (owns < 0) return nullptr;
    if (owns) cell_of(self, number)[self->state_at] = self->left;
    Py_RETURN_NONE;
}

// write_with(cuStreamWriteValue32, address of the words): from now on without Python.
PyObject* write_with(PyObject* object, PyObject* args) {
    auto* self = reinterpret_cast<Noter*>(object);
    unsigned long long write, words;
    if (!PyArg_ParseTuple(args, "KK", &write, &words)) return nullptr;
    self->words = words;
    self->write = reinterpret_cast<WriteValue>(write);
    Py_RETURN_NONE;
}

PyObject** held(Noter* self, int which) {
    PyObject** all[] = {&self->flight, &self->next_cell, &self->known, &self->running, &self->abandoned,
                        &self->devices, &self->stream_of, &self->mark, &self->numbers, &self->marked};
    return which < 10 ? all[which] : nullptr;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    for (int i = 0; PyObject** each = held(reinterpret_cast<Noter*>(object), i); i++) Py_VISIT(*each);
    return 0;
}

int clear(PyObject*) { return 0; }  // they are used until the end

void dealloc(PyObject* object) {
    auto* self = reinterpret_cast<Noter*>(object);
    PyObject_GC_UnTrack(object);
    for (int i = 0; PyObject** each = held(self, i); i++) Py_CLEAR(*each);
    Py_CLEAR(self->last_stream);
    if (self->map.obj) PyBuffer_Release(&self->map);
    delete self->queued;
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

// Noter(map, (header, cell, state at, stream at, cells, left), the ten objects in the order of `held`)
PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject *map, *objects;
    Py_ssize_t header, cell, state_at, stream_at, cells;
    unsigned char left;
    if (!PyArg_ParseTuple(args, "O(nnnnnb)O!", &map, &header, &cell, &state_at, &stream_at, &cells, &left,
                          &PyTuple_Type, &objects))
        return nullptr;
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    auto* self = reinterpret_cast<Noter*>(object);
    self->call = note;
    self->queued = new std::vector<Queued>();
    self->header = header;
    self->cell = cell;
    self->state_at = state_at;
    self->stream_at = stream_at;
    self->mask = static_cast<uint64_t>(cells) - 1;
    self->left = left;
    if (PyTuple_GET_SIZE(objects) != 10) {
        PyErr_SetString(PyExc_ValueError, "ten objects were expected");
    } else {
        for (int i = 0; i < 10; i++) *held(self, i) = Py_NewRef(PyTuple_GET_ITEM(objects, i));
        if (PyObject_GetBuffer(map, &self->map, PyBUF_WRITABLE) == 0 && self->map.len < header + cell * cells)
            PyErr_SetString(PyExc_ValueError, "the ring is larger than the map");
    }
    if (PyErr_Occurred()) {
        Py_DECREF(object);
        return nullptr;
    }
    return object;
}

PyMethodDef methods[] = {
    {"ended", ended, METH_O, "A graph call is over, and so is its last launch."},
    {"replayed", replayed, METH_VARARGS, "A CUDA graph was replayed: the cells of its calls."},
    {"write_with", write_with, METH_VARARGS, "Mark streams without Python."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Noter, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec spec = {"kernelscope_noter.Noter", sizeof(Noter), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "kernelscope_noter", nullptr, -1, functions, nullptr, nullptr, nullptr,
                      nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_kernelscope_noter() {
    limit_name = PyUnicode_InternFromString("limit");
    make_room_name = PyUnicode_InternFromString("make_room");
    meet_noted_name = PyUnicode_InternFromString("meet_noted");
    PyObject* made = PyModule_Create(&module);
    PyObject* type = made && meet_noted_name ? PyType_FromSpec(&spec) : nullptr;
    numbers_type = reinterpret_cast<PyTypeObject*>(type ? PyType_FromSpec(&number_spec) : nullptr);
    PyObject* numbers = Py_XNewRef(reinterpret_cast<PyObject*>(numbers_type));
    if (!numbers || PyModule_AddObject(made, "Numbers", numbers) < 0 || PyModule_AddObject(made, "Noter", type) < 0) {
        Py_XDECREF(type);
        Py_XDECREF(made);
        return nullptr;
    }
    return made;
}
