// Launches what a plan has prepared. In Python the same takes longer than the program's own launch does.
//
// A Flush is called with an execution (a tuple, mostly numbers) and tensors. Whatever is out of the ordinary
// goes to `carefully`, a Python function that is given the same: a mode that would see our calls, a tensor
// without memory, an address that is not a multiple of 8, a thread without a context.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <structmember.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

namespace {

// As the driver declares CUlaunchAttribute and CUlaunchConfig.
struct Attribute {
    int id, unused;
    int value[16];
};
struct Config {
    unsigned grid[3], block[3], shared;
    void* stream;
    Attribute* attributes;
    unsigned count;
};
constexpr int kMayStartEarly = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

using LaunchKernel = int (*)(const Config*, void*, void**, void**);  // cuLaunchKernelEx
using CurrentContext = int (*)(void**);

constexpr Py_ssize_t kMostNumbers = 64;  // of one launch
constexpr Py_ssize_t kMostTensors = 512;  // of one flush: an optimizer has many
constexpr int kScratches = 2;            // pointers that Triton appends to a kernel's arguments

struct Filled {
    Py_ssize_t number;  // which of the launch's
    Py_ssize_t from;    // which of the execution's numbers, or of the tensors
    int64_t more;       // added to it
};

struct Launch {
    void* function;
    unsigned programs, threads, shared;
    int early;  // it may start before the kernel in front of it has ended, for which it waits itself
    std::vector<int64_t> numbers;
    std::vector<Filled> of_execution, of_tensors;
};

struct Flush {
    PyObject_HEAD
    vectorcallfunc call;
    std::vector<Launch>* launches;
    std::vector<Py_ssize_t>* counted;  // where in the execution the pieces of the log are
    PyObject* modes;                   // how many torch function modes there are
    PyObject* carefully;
    PyObject* failed;                  // given the execution and the driver's error
    LaunchKernel launch;
    CurrentContext context;
    Py_ssize_t stream;                 // where in the execution it is
};

PyObject *data_ptr_name, *writes_name;

bool number_of(PyObject* given, int64_t* found) {
    *found = given ? PyLong_AsLongLong(given) : -1;
    return given && !(*found == -1 && PyErr_Occurred());
}

bool number_in(PyObject* execution, Py_ssize_t place, int64_t* found) {
    return place < PyTuple_GET_SIZE(execution) && number_of(PyTuple_GET_ITEM(execution, place), found);
}

// False with or without an exception: then it has to be done carefully.
bool addresses_of(Flush* self, PyObject* const* tensors, Py_ssize_t count, int64_t* addresses) {
    PyObject* depth = PyObject_CallNoArgs(self->modes);
    int64_t modes = 0;
    const bool known = number_of(depth, &modes);
    Py_XDECREF(depth);
    if (!known || modes) return false;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject* address = PyObject_CallMethodNoArgs(tensors[i], data_ptr_name);
        const bool has_one = number_of(address, &addresses[i]);
        Py_XDECREF(address);
        if (!has_one || !addresses[i] || addresses[i] % 8) return false;
    }
    void* context = nullptr;
    return self->context(&context) == 0 && context;
}

bool fill(const Launch& launch, PyObject* execution, const int64_t* addresses, Py_ssize_t count, int64_t* numbers) {
    std::copy(launch.numbers.begin(), launch.numbers.end(), numbers);
    for (const Filled& f : launch.of_execution) {
        int64_t value;
        if (!number_in(execution, f.from, &value)) return false;
        numbers[f.number] = value + f.more;
    }
    for (const Filled& f : launch.of_tensors) {
        if (f.from >= count) return false;
        numbers[f.number] = addresses[f.from] + f.more;
    }
    return true;
}

bool count_writes(Flush* self, PyObject* execution) {
    for (Py_ssize_t place : *self->counted) {
        PyObject* chunk = PyTuple_GET_ITEM(execution, place);
        PyObject* before = PyObject_GetAttr(chunk, writes_name);
        int64_t writes;
        const bool known = number_of(before, &writes);
        Py_XDECREF(before);
        if (!known) return false;
        PyObject* after = PyLong_FromLongLong(writes + static_cast<int64_t>(self->launches->size()));
        const bool set = after && PyObject_SetAttr(chunk, writes_name, after) == 0;
        Py_XDECREF(after);
        if (!set) return false;
    }
    return true;
}

PyObject* flush(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
    auto* self = reinterpret_cast<Flush*>(object);
    const Py_ssize_t count = PyVectorcall_NARGS(nargsf) - 1;
    int64_t addresses[kMostTensors], stream;
    if (names || count < 0 || count > kMostTensors || !PyTuple_Check(args[0]) ||
        !number_in(args[0], self->stream, &stream) || !addresses_of(self, args + 1, count, addresses)) {
        PyErr_Clear();
        return PyObject_Vectorcall(self->carefully, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
    }
    PyObject* execution = args[0];
    int64_t numbers[kMostNumbers + kScratches] = {};
    void* places[kMostNumbers + kScratches];
    for (Py_ssize_t i = 0; i < kMostNumbers + kScratches; i++) places[i] = &numbers[i];
    for (const Launch& launch : *self->launches) {
        if (!fill(launch, execution, addresses, count, numbers)) return nullptr;
        const size_t given = launch.numbers.size();
        numbers[given] = numbers[given + 1] = 0;
        Attribute early{kMayStartEarly, 0, {1}};
        const Config config{{launch.programs, 1, 1}, {launch.threads, 1, 1}, launch.shared,
                            reinterpret_cast<void*>(stream), &early, launch.early ? 1u : 0u};
        int result;
        Py_BEGIN_ALLOW_THREADS
        result = self->launch(&config, launch.function, places, nullptr);
        Py_END_ALLOW_THREADS
        if (result) return PyObject_CallFunction(self->failed, "Oi", execution, result);
    }
    if (!count_writes(self, execution)) return nullptr;
    Py_RETURN_NONE;
}

bool read_filled(PyObject* given, size_t numbers, std::vector<Filled>* into) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++) {
        Filled f;
        long long more;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, i), "nnL", &f.number, &f.from, &more)) return false;
        f.more = more;
        if (f.number < 0 || f.from < 0 || static_cast<size_t>(f.number) >= numbers) {
            PyErr_SetString(PyExc_ValueError, "the launch does not have this number");
            return false;
        }
        into->push_back(f);
    }
    return true;
}

bool read_launch(PyObject* given, Launch* into) {
    unsigned long long function;
    PyObject *numbers, *of_execution, *of_tensors;
    if (!PyArg_ParseTuple(given, "KIIIpO!O!O!", &function, &into->programs, &into->threads, &into->shared,
                          &into->early, &PyTuple_Type, &numbers, &PyTuple_Type, &of_execution, &PyTuple_Type, &of_tensors))
        return false;
    into->function = reinterpret_cast<void*>(function);
    if (PyTuple_GET_SIZE(numbers) > kMostNumbers) {
        PyErr_SetString(PyExc_ValueError, "a launch can have at most 64 numbers");
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++) {
        int64_t number;
        if (!number_of(PyTuple_GET_ITEM(numbers, i), &number)) return false;
        into->numbers.push_back(number);
    }
    return read_filled(of_execution, into->numbers.size(), &into->of_execution) &&
           read_filled(of_tensors, into->numbers.size(), &into->of_tensors);
}

void dealloc(PyObject* object) {
    auto* self = reinterpret_cast<Flush*>(object);
    PyObject_GC_UnTrack(object);
    delete self->launches;
    delete self->counted;
    Py_CLEAR(self->modes);
    Py_CLEAR(self->carefully);
    Py_CLEAR(self->failed);
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
    auto* self = reinterpret_cast<Flush*>(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->modes);
    Py_VISIT(self->carefully);
    Py_VISIT(self->failed);
    return 0;
}

int clear(PyObject* object) {  // `modes`, `carefully` and `failed` are called until the end
    (void)object;
    return 0;
}

// Flush(cuLaunchKernelEx, cuCtxGetCurrent, stream, counted, launches, modes, carefully, failed)
PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
    unsigned long long launch, context;
    Py_ssize_t stream;
    PyObject *counted, *launches, *modes, *carefully, *failed;
    if (!PyArg_ParseTuple(args, "KKnO!O!OOO", &launch, &context, &stream, &PyTuple_Type, &counted, &PyTuple_Type,
                          &launches, &modes, &carefully, &failed))
        return nullptr;
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    auto* self = reinterpret_cast<Flush*>(object);
    self->call = flush;
    self->launches = new std::vector<Launch>();
    self->counted = new std::vector<Py_ssize_t>();
    self->launch = reinterpret_cast<LaunchKernel>(launch);
    self->context = reinterpret_cast<CurrentContext>(context);
    self->stream = stream;
    self->modes = Py_NewRef(modes);
    self->carefully = Py_NewRef(carefully);
    self->failed = Py_NewRef(failed);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(counted); i++)
        self->counted->push_back(PyLong_AsSsize_t(PyTuple_GET_ITEM(counted, i)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(launches) && !PyErr_Occurred(); i++) {
        Launch read{};
        if (read_launch(PyTuple_GET_ITEM(launches, i), &read)) self->launches->push_back(std::move(read));
    }
    if (PyErr_Occurred()) {
        Py_DECREF(object);
        return nullptr;
    }
    return object;
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Flush, call), READONLY, nullptr},
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
PyType_Spec spec = {"kernelscope_launcher.Flush", sizeof(Flush), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "kernelscope_launcher", nullptr, -1, nullptr, nullptr, nullptr, nullptr,
                      nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_kernelscope_launcher() {
    data_ptr_name = PyUnicode_InternFromString("data_ptr");
    writes_name = PyUnicode_InternFromString("writes");
    PyObject* made = PyModule_Create(&module);
    if (!made || !data_ptr_name || !writes_name) return nullptr;
    PyObject* type = PyType_FromSpec(&spec);
    if (!type || PyModule_AddObject(made, "Flush", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(made);
        return nullptr;
    }
    return made;
}
