// Keeps what instrumented C++ wrappers tell, until somebody asks for it. No Python runs in between: a thread
// inside an AOTInductor model may not wait for the GIL, because whoever holds it may wait for the model.
#include <fnmatch.h>
#include <link.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
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
  size_t first, count; // of its values
};

enum { BEFORE = 0, AFTER = 1, BIRTH = 2, BEGIN = 3, END = 4 };

// What one thread listens to: a wrapper may call another one, through an operator of the user's.
struct Heard {
  std::vector<Record> records;
  std::vector<Value> values;
  size_t taken; // records
  int64_t room; // bytes of values that may still be copied
  void clear() { records.clear(), values.clear(), taken = 0; }
};

thread_local std::vector<Heard> heard;
thread_local Heard spare; // its memory is used again
thread_local int64_t asked_at = 0;
thread_local std::string summary; // of what this thread has heard
thread_local std::vector<int64_t> starts; // of its launches
std::mutex lock; // of all that follows
std::unordered_set<std::string> texts; // of metas: the library that they come from may be unloaded
std::unordered_map<const char*, const char*> kept_as; // by where such a text lies, while no library comes or goes
uint64_t changes_of_libraries = 0; // at that time
std::vector<std::string> globs;
std::atomic<bool> prints{false};

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

const char* kept(const char* meta) {
  const char*& known = kept_as[meta];
  if (known == nullptr) known = texts.emplace(meta).first->c_str();
  return known;
}

// Bytes of one element, by c10::ScalarType; 0 for those that launch_log.py does not know.
int64_t bytes_of(int32_t dtype) {
  static const int8_t sizes[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
                                 1, 1, 1, 1, 2, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return dtype >= 0 && dtype < (int32_t)sizeof(sizes) ? sizes[dtype] : 0;
}

template <class T> void put(const T& value) { summary.append(reinterpret_cast<const char*>(&value), sizeof(value)); }

// Memory is named by the order in which it is met: another execution may find the same somewhere else.
struct Memories {
  std::vector<std::pair<int64_t, int32_t>> named; // by where it begins; few, so a list is quick
  int32_t count = 0;
  void put_name(int64_t begins, bool is_new) {
    for (auto& each : named)
      if (each.first == begins) {
        if (is_new) each.second = count++;
        return put(each.second);
      }
    named.emplace_back(begins, count);
    put(count++);
  }
};

// False for a value of which no other execution can be known to have the same.
bool put_value(const Value& value, Memories& memories, bool is_new) {
  if (value.type != 3) {
    const int64_t words[] = {value.type, value.arg, value.integer};
    put(words);
    if (value.type == 2) put(value.real);
    return true;
  }
  int64_t bytes = bytes_of(value.dtype);
  if (bytes == 0 || value.dims > 16 || value.tensor != nullptr) return false;
  const int64_t words[] = {value.type,         value.arg,  value.dtype,  value.device_type,
                           value.device_index, value.dims, value.offset, value.nbytes};
  put(words);
  summary.append(reinterpret_cast<const char*>(value.sizes), value.dims * sizeof(int64_t));
  summary.append(reinterpret_cast<const char*>(value.strides), value.dims * sizeof(int64_t));
  memories.put_name(reinterpret_cast<int64_t>(value.data) - value.offset * bytes, is_new);
  return true;
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
  Heard& to = heard.back();
  to.records.push_back(
      Record{moment, kept(meta), moment == AFTER ? asked_at : now(), to.values.size(), (size_t)count});
  to.values.insert(to.values.end(), values, values + count);
}

struct Hooks {
  int64_t (*wants)(const char*);
  void (*tell)(int32_t, const char*, const Value*, int64_t);
} const the_hooks{wants, tell};

} // namespace

extern "C" {

const void* kernelscope_hooks() { return &the_hooks; }

// This thread listens from now on, and values are copied until `bytes` of them wait to be taken.
void kernelscope_begin(int64_t bytes) {
  heard.push_back(std::move(spare));
  heard.back().clear();
  heard.back().room = bytes;
}

// This thread listens no more. 0, and it still does, if copies have not been taken.
int32_t kernelscope_end() {
  Heard& last = heard.back();
  for (size_t i = last.taken; i < last.records.size(); i++)
    for (size_t k = 0; k < last.records[i].count; k++)
      if (last.values[last.records[i].first + k].tensor != nullptr) return 0;
  spare = std::move(last);
  heard.pop_back();
  return 1;
}

// Everything that this thread has heard and not taken, but for times and addresses, as bytes that are equal for
// executions that are recorded alike; and when each launch began. No bytes where that cannot be said.
int64_t kernelscope_summary(const char** bytes, const int64_t** began, int64_t* launches) {
  summary.clear(), starts.clear();
  if (heard.empty()) return 0;
  Memories memories;
  const auto& values = heard.back().values;
  const Record* launch = nullptr; // that has begun
  auto was_there = [&](int32_t arg) {
    for (size_t i = 0; launch != nullptr && i < launch->count; i++)
      if (values[launch->first + i].arg == arg && values[launch->first + i].type == 3) return true;
    return false;
  };
  for (const auto& record : heard.back().records) {
    put(record.moment), put(record.meta);
    if (record.moment == BEFORE) starts.push_back(record.ns), launch = &record;
    for (size_t i = 0; i < record.count; i++) {
      const Value& value = values[record.first + i];
      bool is_new = record.moment == BIRTH || (record.moment == AFTER && !was_there(value.arg));
      if (!put_value(value, memories, is_new)) return 0;
    }
    if (record.moment == AFTER) launch = nullptr;
  }
  *bytes = summary.data(), *began = starts.data(), *launches = (int64_t)starts.size();
  return (int64_t)summary.size();
}

// Changes whenever a library is loaded or unloaded.
uint64_t kernelscope_libraries() {
  uint64_t changes = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        *static_cast<uint64_t*>(to) = info->dlpi_adds + info->dlpi_subs;
        return 1; // every entry has the same
      },
      &changes);
  std::lock_guard<std::mutex> guard(lock);
  if (changes != changes_of_libraries) kept_as.clear();
  return changes_of_libraries = changes;
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
  if (heard.empty() || heard.back().taken == heard.back().records.size()) return 0;
  const Record& record = heard.back().records[heard.back().taken++];
  *moment = record.moment;
  *meta = record.meta;
  *ns = record.ns;
  *values = heard.back().values.data() + record.first;
  *count = (int64_t)record.count;
  return 1;
}
}
