// Counts the operators that run on threads without a dispatch mode. Built with the headers of the installed torch.
#include <ATen/record_function.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Counts {
  std::uint64_t thread;
  char name[16] = "";
  std::mutex lock;
  std::map<std::string, std::uint64_t> operators;
};

// Never destroyed: threads may outlive static objects.
std::mutex& all_lock = *new std::mutex;
std::vector<std::shared_ptr<Counts>>& all = *new std::vector<std::shared_ptr<Counts>>;
std::atomic<std::uint64_t> session{0};  // odd while it counts
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

thread_local std::uint64_t has_mode_in = 0;  // the session in which this thread was found to have a mode
thread_local std::uint64_t counted_in = 0;
thread_local int depth = 0;
thread_local std::shared_ptr<Counts> mine;

// In a forked child: where its parent is told that an operator ran here, until one has.
std::atomic<bool> tells{false};
std::mutex& told_lock = *new std::mutex;
std::vector<char*>& told = *new std::vector<char*>;
const char* const computes_nothing[] = {
    "aten::empty", "aten::empty_strided", "aten::detach", "aten::detach_", "aten::alias", "aten::view",
    "aten::as_strided", "aten::set_", "aten::resize_", "aten::lift_fresh", "aten::unbind", "aten::select"};

void tell(const char* name) {
  if (std::strstr(name, "::") == nullptr) return;
  for (const char* each : computes_nothing)
    if (std::strcmp(name, each) == 0) return;
  std::lock_guard<std::mutex> guard(told_lock);
  for (char* byte : told) *byte = 1;
  told.clear();
  tells = false;
}

struct Counted : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction& function) {
  if (tells.load(std::memory_order_relaxed)) tell(function.name());
  const auto now = session.load(std::memory_order_relaxed);
  if (has_mode_in == now || !(now & 1)) return nullptr;
  if (c10::impl::dispatch_mode_enabled()) {
    has_mode_in = now;  // its handlers run operators without the mode
    return nullptr;
  }
  if (std::strncmp(function.name(), "autograd::", 10) == 0) return nullptr;  // a range around operators
  if (depth++ == 0) {
    if (counted_in != now) {
      mine = std::make_shared<Counts>();
      mine->thread = reinterpret_cast<std::uint64_t>(pthread_self());
      pthread_getname_np(pthread_self(), mine->name, sizeof mine->name);
      std::lock_guard<std::mutex> guard(all_lock);
      all.push_back(mine);
      counted_in = now;
    }
    std::lock_guard<std::mutex> guard(mine->lock);
    ++mine->operators[function.name()];
  }
  return std::make_unique<Counted>();
}

void ends(const at::RecordFunction&, at::ObserverContext* context) {
  if (context != nullptr) --depth;
}

void listen() {
  if (handle == at::INVALID_CALLBACK_HANDLE)
    handle = at::addGlobalCallback(
        at::RecordFunctionCallback(begins, ends).scopes({at::RecordScope::FUNCTION}));
}

}  // namespace

extern "C" {

void kernelscope_watch_start() {
  {
    std::lock_guard<std::mutex> guard(all_lock);
    all.clear();
  }
  session.fetch_add(session.load() & 1 ? 2 : 1);
  listen();
}

void kernelscope_watch_stop() {
  if (session.load() & 1) session.fetch_add(1);
  if (handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
}

// Something was compiled on this thread, under modes of the compiler's own: the next operator shows whether it has
// another.
void kernelscope_watch_compiled() { has_mode_in = 0; }

// In a forked child: another thread of the parent may have held a lock.
void kernelscope_watch_forget() {
  if (session.load() & 1) session.fetch_add(1);
}

// In a forked child: a byte of memory that it shares with its parent; null: no more.
void kernelscope_watch_tell(char* byte) {
  std::lock_guard<std::mutex> guard(told_lock);
  if (byte == nullptr) told.clear();
  else told.push_back(byte);
  tells = !told.empty();
  if (tells) listen();
}

// Lines "thread<tab>its name<tab>operator<tab>count"; returns how many bytes there are, whether or not they fit.
std::uint64_t kernelscope_watch_read(char* text, std::uint64_t size) {
  std::string lines;
  std::lock_guard<std::mutex> guard(all_lock);
  for (const auto& counts : all) {
    std::lock_guard<std::mutex> inner(counts->lock);
    for (const auto& [name, count] : counts->operators)
      lines += std::to_string(counts->thread) + '\t' + counts->name + '\t' + name + '\t' +
               std::to_string(count) + '\n';
  }
  if (lines.size() <= size) std::memcpy(text, lines.data(), lines.size());
  return lines.size();
}

}  // extern "C"
