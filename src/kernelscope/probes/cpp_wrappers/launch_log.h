// Written into generated C++ wrappers: tells of each launch, to whoever has connected. Needs nothing but
// torch's C shims, which such a wrapper includes anyway, so that a package runs where we are not installed.
#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace kernelscope {

enum Type : int32_t { NOTHING = 0, INTEGER = 1, REAL = 2, TENSOR = 3 };

static constexpr int64_t MOST_DIMS = 16;

struct Value {
  int32_t type;
  int32_t arg;  // which argument of the launch it belongs to: a list has several
  int64_t integer;
  double real;
  void* tensor;  // a copy, owned by whoever is told; null if none was asked for or could be made
  void* data;    // of the tensor
  int64_t offset, nbytes;  // elements before it, and bytes of all, in its storage
  int32_t dtype, device_type, device_index, dims;  // more than MOST_DIMS: the rest is not told
  int64_t sizes[MOST_DIMS], strides[MOST_DIMS];
};

enum Moment : int32_t { BEFORE = 0, AFTER = 1, BIRTH = 2, BEGIN = 3, END = 4 };

struct Hooks {
  // What is wanted of a launch: -1 nothing, 0 that it happens, else bytes of values that may still be copied.
  int64_t (*wants)(const char* meta);
  void (*tell)(int32_t moment, const char* meta, const Value* values, int64_t count);
};

static std::atomic<const Hooks*> hooks{nullptr};

struct Values {
  std::vector<Value> all;
  int64_t room;  // bytes that may be copied
  explicit Values(int64_t room) : room(room) {}
  Value& add(int32_t arg) {
    all.push_back(Value{});
    all.back().arg = arg;
    return all.back();
  }
};

// A raw pointer that a C++ kernel is given, with the tensor that it points into.
template <class P, class T> struct Pointer {
  P pointer;
  const T* tensor;
  operator P() const { return pointer; }
};
template <class P, class T> Pointer<P, T> into(P pointer, const T& tensor) { return {pointer, &tensor}; }

// Handles behind a pointer: what an operator returns, an optional tensor, a list.
template <class P> struct Handles {
  P pointer;
  int64_t count;
  bool returned;
  operator P() const { return pointer; }
};
template <class P> Handles<P> returns(P pointer) { return {pointer, 1, true}; }
template <class P> Handles<P> optional(P pointer) { return {pointer, 1, false}; }
template <class P> Handles<P> listed(P pointer, int64_t count) { return {pointer, count, false}; }

inline void add_tensor(Values& to, int32_t arg, AtenTensorHandle handle, bool copies) {
  Value& one = to.add(arg);
  bool defined = false;
  if (handle == nullptr || aoti_torch_is_defined(handle, &defined) != AOTI_TORCH_SUCCESS || !defined) return;
  void* data = nullptr;
  int64_t offset = 0, nbytes = 0;
  if (aoti_torch_get_data_ptr(handle, &data) != AOTI_TORCH_SUCCESS) return;
  if (aoti_torch_get_storage_offset(handle, &offset) != AOTI_TORCH_SUCCESS) return;
  if (aoti_torch_get_storage_size(handle, &nbytes) != AOTI_TORCH_SUCCESS) return;
  int64_t dims = 0, *sizes = nullptr, *strides = nullptr;
  if (aoti_torch_get_dim(handle, &dims) != AOTI_TORCH_SUCCESS) return;
  if (aoti_torch_get_sizes(handle, &sizes) != AOTI_TORCH_SUCCESS) return;
  if (aoti_torch_get_strides(handle, &strides) != AOTI_TORCH_SUCCESS) return;
  aoti_torch_get_dtype(handle, &one.dtype);
  aoti_torch_get_device_type(handle, &one.device_type);
  aoti_torch_get_device_index(handle, &one.device_index);
  one.dims = static_cast<int32_t>(dims);
  one.type = TENSOR;
  if (dims > MOST_DIMS) return;
  for (int64_t i = 0; i < dims; i++) one.sizes[i] = sizes[i], one.strides[i] = strides[i];
  one.offset = offset;
  one.nbytes = nbytes;
  one.data = data;
  if (!copies || nbytes > to.room) return;
  AtenTensorHandle copy = nullptr;
  bool grad = aoti_torch_grad_mode_is_enabled();
  aoti_torch_grad_mode_set_enabled(false);
  if (aoti_torch_clone_preserve_strides(handle, &copy) == AOTI_TORCH_SUCCESS) {
    one.tensor = copy;
    to.room -= nbytes;
  }
  aoti_torch_grad_mode_set_enabled(grad);
}

template <class T> void add(Values& to, int32_t arg, bool after, bool copies, const T& value) {
  using D = std::decay_t<T>;
  if constexpr (std::is_same_v<D, std::nullptr_t>) {
    to.add(arg);
  } else if constexpr (std::is_integral_v<D> || std::is_enum_v<D>) {
    Value& one = to.add(arg);
    one.type = INTEGER;
    one.integer = static_cast<int64_t>(value);
  } else if constexpr (std::is_floating_point_v<D>) {
    Value& one = to.add(arg);
    one.type = REAL;
    one.real = static_cast<double>(value);
  } else if constexpr (std::is_convertible_v<const D&, AtenTensorHandle>) {
    add_tensor(to, arg, static_cast<AtenTensorHandle>(value), copies);
  } else {
    to.add(arg);
  }
}

template <class P, class T>
void add(Values& to, int32_t arg, bool after, bool copies, const Pointer<P, T>& value) {
  if constexpr (std::is_convertible_v<const T&, AtenTensorHandle>)
    add_tensor(to, arg, static_cast<AtenTensorHandle>(*value.tensor), copies);
  else
    to.add(arg);
}

template <class P> void add(Values& to, int32_t arg, bool after, bool copies, const Handles<P>& value) {
  if constexpr (std::is_convertible_v<decltype(*value.pointer), AtenTensorHandle>) {
    if (value.pointer == nullptr || (value.returned && !after)) {
      to.add(arg);
      return;
    }
    for (int64_t i = 0; i < value.count; i++) add_tensor(to, arg, value.pointer[i], copies);
  } else {
    to.add(arg);
  }
}

template <class T> struct IsMadeByLaunch : std::false_type {};
template <class P> struct IsMadeByLaunch<Handles<P>> : std::true_type {};

// `copied` has a bit for each argument whose values are wanted. Where none are, a launch that is over has shown
// everything before it began but for what it has made; `made` has a bit for each argument that may be that.
template <class... T>
void tell(const Hooks* to, int32_t moment, const char* meta, int64_t room, uint64_t copied, uint64_t made,
          const T&... args) {
  Values values(room);
  values.all.reserve(sizeof...(args));
  int32_t i = 0;
  auto add_one = [&](const auto& arg) {
    auto has = [i](uint64_t bits) { return ((bits >> (i < 63 ? i : 63)) & 1) != 0; };
    if (room > 0 || moment != AFTER || has(made) || IsMadeByLaunch<std::decay_t<decltype(arg)>>::value)
      add(values, i, moment != BEFORE, room > 0 && has(copied), arg);
    i++;
  };
  (add_one(args), ...);
  to->tell(moment, meta, values.all.data(), static_cast<int64_t>(values.all.size()));
}

// Arguments are evaluated once, by our caller: some of them can be evaluated only once.
template <class F, class... T>
auto launch(const char* meta, uint64_t before, uint64_t after, F&& run, T&&... args)
    -> decltype(run(static_cast<T&&>(args)...)) {
  const Hooks* to = hooks.load(std::memory_order_acquire);
  int64_t room = to == nullptr ? -1 : to->wants(meta);
  if (room < 0) return run(static_cast<T&&>(args)...);
  tell(to, BEFORE, meta, room, before, 0, args...);
  if constexpr (std::is_void_v<decltype(run(static_cast<T&&>(args)...))>) {
    run(static_cast<T&&>(args)...);
    tell(to, AFTER, meta, to->wants(meta), after, 0, args...);
  } else {
    auto result = run(static_cast<T&&>(args)...);
    if constexpr (std::is_same_v<decltype(result), AOTITorchError>)
      if (result != AOTI_TORCH_SUCCESS) return result; // it failed: what it left means nothing
    tell(to, AFTER, meta, to->wants(meta), after, 0, args...);
    return result;
  }
}

// A tensor that is about to be taken away, while somebody listens.
struct Kept {
  AtenTensorHandle handle = nullptr;
  explicit Kept(AtenTensorHandle given) {
    if (hooks.load(std::memory_order_acquire) != nullptr) aoti_torch_new_tensor_handle(given, &handle);
  }
  Kept(const Kept&) = delete;
  ~Kept() {
    if (handle != nullptr) aoti_torch_delete_tensor_object(handle);
  }
  operator AtenTensorHandle() const { return handle; }
};

// A launch that takes several statements: told before the first and after the last of them.
template <class... T>
void around(int32_t moment, const char* meta, uint64_t copied, const T&... args) {
  const Hooks* to = hooks.load(std::memory_order_acquire);
  int64_t room = to == nullptr ? -1 : to->wants(meta);
  if (room >= 0) tell(to, moment, meta, room, copied, copied, args...);
}

// New memory: what it holds means nothing yet.
template <class F, class... T> auto birth(F&& run, T&&... args) -> decltype(run(static_cast<T&&>(args)...)) {
  auto result = run(static_cast<T&&>(args)...);
  const Hooks* to = hooks.load(std::memory_order_acquire);
  if (to != nullptr && to->wants(nullptr) >= 0) tell(to, BIRTH, "", 0, 0, 0, args...);
  return result;
}

struct Execution {
  const char* meta;
  const Hooks* to;
  explicit Execution(const char* meta) : meta(meta), to(hooks.load(std::memory_order_acquire)) {
    if (to != nullptr) to->tell(BEGIN, meta, nullptr, 0);
  }
  ~Execution() {
    if (to != nullptr && hooks.load(std::memory_order_acquire) == to) to->tell(END, meta, nullptr, 0);
  }
};

} // namespace kernelscope

extern "C" __attribute__((visibility("default"), used)) void kernelscope_connect_2(const void* hooks) {
  kernelscope::hooks.store(static_cast<const kernelscope::Hooks*>(hooks), std::memory_order_release);
}
