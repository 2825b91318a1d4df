// Which call comes next, and where its cell is; numbers.py has the same in Python.

#include <Python.h>
#include <structmember.h>

#include <cstdint>

namespace {

struct Numbers {
    PyObject_HEAD
    vectorcallfunc call;
    int64_t next;
    int64_t header, cell, mask;
};

PyTypeObject* numbers_type;

int64_t number_of(PyObject* given) { return given ? PyLong_AsLongLong(given) : -1; }

PyObject* next_number(PyObject* object, PyObject* const*, size_t nargsf, PyObject*) {
    auto* self = reinterpret_cast<Numbers*>(object);
    if (PyVectorcall_NARGS(nargsf)) {
        PyErr_SetString(PyExc_TypeError, "no arguments were expected");
        return nullptr;
    }
    const int64_t number = self->next++;
    return Py_BuildValue("LL", static_cast<long long>(number),
                         static_cast<long long>(self->header + ((number - 1) & self->mask) * self->cell));
}

PyObject* take(PyObject* object, PyObject* count) {
    auto* self = reinterpret_cast<Numbers*>(object);
    const int64_t taken = number_of(count), first = self->next;
    if (PyErr_Occurred()) return nullptr;
    self->next += taken;
    return PyLong_FromLongLong(first);
}

// Numbers(cells, header, cell)
PyObject* make_numbers(PyTypeObject* type, PyObject* args, PyObject*) {
    long long cells, header, cell;
    if (!PyArg_ParseTuple(args, "LLL", &cells, &header, &cell)) return nullptr;
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    auto* self = reinterpret_cast<Numbers*>(object);
    self->call = next_number;
    self->next = 1;
    self->header = header;
    self->cell = cell;
    self->mask = cells - 1;
    return object;
}

void dealloc_numbers(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyMethodDef number_methods[] = {
    {"take", take, METH_O, "So many neighbouring ones; the first of them."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef number_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Numbers, call), READONLY, nullptr},
    {"next", T_LONGLONG, offsetof(Numbers, next), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot number_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(make_numbers)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_numbers)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_methods, number_methods},
    {Py_tp_members, number_members},
    {0, nullptr},
};
PyType_Spec number_spec = {"kernelscope_noter.Numbers", sizeof(Numbers), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, number_slots};

}  // namespace
