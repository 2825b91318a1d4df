// Threads of one block, their barrier, and events; a program that cannot go on is stopped with a sentence.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "failures.h"

#if defined(__SANITIZE_THREAD__)
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace choreo {

// While it lives, the thread sanitizer sees neither locks nor accesses: that a thread has ended orders no other one.
struct unseen {
#if defined(__SANITIZE_THREAD__)
  unseen() {
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~unseen() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  }
#else
  unseen() {}
#endif
};

constexpr int64_t most_threads = 1024;

// All threads of one call. Whoever lets others go on does so for them, so that "nobody runs" is exact. A waiter has
// a lock of its own: if it took the common one when it woke, it would come after every thread that had it before,
// and the thread sanitizer would take two threads that race for two threads in order.
class world {
 public:
  std::mutex lock;

  void grant() {  // with the lock held: everyone who can go on now
    std::size_t kept = 0;
    for (waiter* each : waiting_) {
      if (each->take()) {
        ++running_;
        each->wake(outcome::granted);
      } else {
        waiting_[kept++] = each;
      }
    }
    waiting_.resize(kept);
  }
  void wait(std::unique_lock<std::mutex> held, const std::function<bool()>& take, const char* message) {
    if (is_over_) throw stopped();
    if (take()) return;
    waiter me(take, message);
    waiting_.push_back(&me);
    --running_;
    stop_if_stuck();
    held.unlock();
    if (me.sleep() == outcome::stopped) throw stopped();
  }
  void begin(int64_t threads) {  // the thread that starts them waits for them
    std::lock_guard<std::mutex> held(lock);
    running_ += threads - 1;
  }
  void leave() {
    const unseen end_of_a_thread;
    std::lock_guard<std::mutex> held(lock);
    --running_;
    stop_if_stuck();
  }
  void go_on() {
    std::lock_guard<std::mutex> held(lock);
    ++running_;
    if (is_over_) throw stopped();
  }
  void stop(const char* message) {
    std::lock_guard<std::mutex> held(lock);
    end(message);
  }

 private:
  enum class outcome { open, granted, stopped };
  struct waiter {
    waiter(const std::function<bool()>& taking, const char* text) : take(taking), message(text) {}
    void wake(outcome with) {
      std::lock_guard<std::mutex> mine(own);
      came = with;
      changed.notify_one();
    }
    outcome sleep() {
      std::unique_lock<std::mutex> mine(own);
      changed.wait(mine, [this] { return came != outcome::open; });
      return came;
    }
    const std::function<bool()>& take;
    const char* message;

   private:
    std::mutex own;
    std::condition_variable changed;
    outcome came = outcome::open;
  };
  void end(const char* message) {
    check(false, message);
    is_over_ = true;
    for (waiter* each : waiting_) each->wake(outcome::stopped);
    waiting_.clear();
  }
  void stop_if_stuck() {
    if (running_ > 0 || waiting_.empty() || is_over_) return;
    char text[480];
    const std::size_t others = waiting_.size() - 1;
    if (others == 0)
      std::snprintf(text, sizeof text, "%s", waiting_[0]->message);
    else
      std::snprintf(text, sizeof text, "%s; %zu other thread%s also wait%s", waiting_[0]->message, others,
                    others == 1 ? "" : "s", others == 1 ? "s" : "");
    end(text);
  }
  std::vector<waiter*> waiting_;
  int64_t running_ = 1;
  bool is_over_ = false;
};

class event {
 public:
  void trigger(world& all) {
    std::lock_guard<std::mutex> held(all.lock);
    is_set_ = true;
    all.grant();
  }
  void wait(world& all, const char* message) {  // and unset it
    std::unique_lock<std::mutex> held(all.lock);
    all.wait(std::move(held), [this] { return std::exchange(is_set_, false); }, message);
  }

 private:
  bool is_set_ = false;
};

class team {
 public:
  team(world& all, int64_t size, const char* too_many) : all_(all), size_(size) {
    if (size > most_threads) {
      all.stop(too_many);
      throw stopped();
    }
  }
  template <class Body>
  void run(const Body& body) {
    std::vector<std::thread> threads;
    all_.begin(size_);
    for (int64_t rank = 0; rank < size_; ++rank) {
      try {
        threads.emplace_back([this, &body, rank] {
          try {
            body(rank);
          } catch (const stopped&) {
          }
          all_.leave();
        });
      } catch (const std::system_error&) {
        all_.stop("this machine cannot start as many threads as the program has");
        for (int64_t missing = rank; missing < size_; ++missing) all_.leave();
        break;
      }
    }
    for (std::thread& each : threads) each.join();
    all_.go_on();
  }
  void barrier(const char* message) {
    std::unique_lock<std::mutex> held(all_.lock);
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++phase_;
      all_.grant();
      return;
    }
    const int64_t mine = phase_;
    all_.wait(std::move(held), [this, mine] { return phase_ != mine; }, message);
  }

 private:
  world& all_;
  int64_t size_, arrived_ = 0, phase_ = 0;
};

}  // namespace choreo
