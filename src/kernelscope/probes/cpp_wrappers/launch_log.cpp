// Keeps what instrumented C++ wrappers tell, until somebody asks for it. No Python runs in between: a thread
// inside an AOTInductor model may not wait for the GIL, because whoever holds it may wait for the model.
#include <fnmatch.h>
#include <link.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

namespace {

struct Value { // as launch_log.h has it
  int32_t type, arg;
  int64_t integer;
  double real;
  void* tensor;
  void* data;
  int64_t offset, nbytes;
  int32_t dtype, device_type, device_index, dims;
  int64_t sizes[16], strides[16];
};

struct Record {
  int32_t moment;
  const char* meta;
  int64_t ns;
  std::vector<Value> values;
};

enum { BEFORE = 0, AFTER = 1, BIRTH = 2, BEGIN = 3, END = 4 };

// What one thread listens to: a wrapper may call another one, through an operator of the user's.
struct Heard {
  std::deque<Record> records;
  int64_t room; // bytes of values that may still be copied
};

thread_local std::vector<Heard> heard;
thread_local Record taken;
thread_local int64_t asked_at = 0;
std::mutex lock; // of all that follows
std::unordered_set<std::string> texts; // of metas: the library that they come from may be unloaded
std::vector<std::string> globs;
std::atomic<bool> prints{false};

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

const char* kept(const char* meta) {
  // By its text and not only by its address: another library may have been loaded there since.
  return texts.emplace(meta).first->c_str();
}

// The names by which a kernel may be asked for stand first in its meta: "name\tother\t…\n".
void print_name(int32_t moment, const char* meta) {
  const char* end = strchr(meta, '\n');
  if (end == nullptr) return;
  std::string names(meta, end), first;
  bool wanted = globs.empty();
  size_t from = 0;
  while (from <= names.size()) {
    size_t to = names.find('\t', from);
    std::string name = names.substr(from, to == std::string::npos ? to : to - from);
    if (first.empty()) first = name;
    for (const auto& glob : globs) wanted |= fnmatch(glob.c_str(), name.c_str(), FNM_CASEFOLD) == 0;
    if (to == std::string::npos) break;
    from = to + 1;
  }
  if (!wanted) return;
  printf("[ %s: %s ]\n", moment == BEFORE ? "before_launch" : "after_launch", first.c_str());
  fflush(stdout);
}

int64_t wants(const char* meta) {
  if (heard.empty()) return -1;
  asked_at = now(); // what is copied after a launch is no part of it
  return heard.back().room > 0 ? heard.back().room : 0;
}

void tell(int32_t moment, const char* meta, const Value* values, int64_t count) {
  if (heard.empty()) return;
  std::lock_guard<std::mutex> guard(lock);
  if (prints.load(std::memory_order_acquire) && (moment == BEFORE || moment == AFTER)) print_name(moment, meta);
  for (int64_t i = 0; i < count; i++)
    if (values[i].tensor != nullptr) heard.back().room -= values[i].nbytes;
  heard.back().records.push_back(
      Record{moment, kept(meta), moment == AFTER ? asked_at : now(), std::vector<Value>(values, values + count)});
}

struct Hooks {
  int64_t (*wants)(const char*);
  void (*tell)(int32_t, const char*, const Value*, int64_t);
} const the_hooks{wants, tell};

} // namespace

extern "C" {

const void* kernelscope_hooks() { return &the_hooks; }

// This thread listens from now on, and values are copied until `bytes` of them wait to be taken.
void kernelscope_begin(int64_t bytes) { heard.push_back(Heard{{}, bytes}); }

// All has been taken.
void kernelscope_end() { heard.pop_back(); }

// Changes whenever a library is loaded or unloaded.
uint64_t kernelscope_libraries() {
  uint64_t changes = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        *static_cast<uint64_t*>(to) = info->dlpi_adds + info->dlpi_subs;
        return 1; // every entry has the same
      },
      &changes);
  return changes;
}

void kernelscope_print_names(int32_t on, const char* given) {
  std::lock_guard<std::mutex> guard(lock);
  globs.clear();
  for (const char* at = given; *at;) {
    const char* end = strchr(at, '\n');
    globs.emplace_back(at, end ? end : at + strlen(at));
    if (!end) break;
    at = end + 1;
  }
  prints.store(on != 0, std::memory_order_release);
}

// The next record of this thread; 0 if there is none.
int32_t kernelscope_take(int32_t* moment, const char** meta, int64_t* ns, const Value** values, int64_t* count) {
  if (heard.empty() || heard.back().records.empty()) return 0;
  taken = std::move(heard.back().records.front());
  heard.back().records.pop_front();
  *moment = taken.moment;
  *meta = taken.meta;
  *ns = taken.ns;
  *values = taken.values.data();
  *count = (int64_t)taken.values.size();
  return 1;
}
}
