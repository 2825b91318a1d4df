// Threads of one block, their barrier, and events; a program that cannot go on is stopped with a sentence.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "failures.h"

namespace choreo {

constexpr int64_t most_threads = 1024;

struct stopped {};  // unwinds the threads of a program that cannot go on

// All threads of one call. Whoever lets others go on does so for them, so that "nobody runs" is exact.
class world {
 public:
  std::mutex lock;

  void grant() {  // with the lock held: everyone who can go on now
    bool any = false;
    for (std::size_t i = 0; i < waiting_.size();) {
      if (waiting_[i]->take()) {
        waiting_[i]->granted = true;
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
        ++running_;
        any = true;
      } else {
        ++i;
      }
    }
    if (any) changed_.notify_all();
  }
  void wait(std::unique_lock<std::mutex>& held, const std::function<bool()>& take, const char* message) {
    if (is_over_) throw stopped();
    if (take()) return;
    waiter me{take, message};
    waiting_.push_back(&me);
    --running_;
    stop_if_stuck();
    changed_.wait(held, [&] { return me.granted || is_over_; });
    if (!me.granted) throw stopped();
  }
  void begin(int64_t threads) {  // the thread that starts them waits for them
    std::lock_guard<std::mutex> held(lock);
    running_ += threads - 1;
  }
  void leave() {
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
    check(false, message);
    is_over_ = true;
    changed_.notify_all();
  }

 private:
  struct waiter {
    const std::function<bool()>& take;
    const char* message;
    bool granted = false;
  };
  void stop_if_stuck() {
    if (running_ > 0 || waiting_.empty() || is_over_) return;
    char text[480];
    const std::size_t others = waiting_.size() - 1;
    if (others == 0)
      std::snprintf(text, sizeof text, "%s", waiting_[0]->message);
    else
      std::snprintf(text, sizeof text, "%s; %zu other thread%s also wait%s", waiting_[0]->message, others,
                    others == 1 ? "" : "s", others == 1 ? "s" : "");
    check(false, text);
    is_over_ = true;
    changed_.notify_all();
  }
  std::condition_variable changed_;
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
    all.wait(held, [this] { return std::exchange(is_set_, false); }, message);
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
    all_.wait(held, [this, mine] { return phase_ != mine; }, message);
  }

 private:
  world& all_;
  int64_t size_, arrived_ = 0, phase_ = 0;
};

}  // namespace choreo
