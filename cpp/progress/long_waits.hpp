// LongWaits: the threads that have slept in wait() for long, and that only their operation's end wakes. A rank stands
// still if these are all that could make a call.
//
// Any thread.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace ciranda {

// Whether a thread of the process that is none of these may yet make a call. Whoever cannot tell says that it may.
using MayOthersCall = std::function<bool(std::span<const pthread_t> waiting)>;

class LongWaits {
 public:
  struct Seen {
    std::uint64_t version = 0;  // another one whenever a wait has begun, or ended, since
    std::vector<pthread_t> threads;
  };
  Seen see() const {
    const std::lock_guard lock(mutex_);
    return {version_, threads_};
  }
  bool are_still(const Seen& seen) const {
    const std::lock_guard lock(mutex_);
    return version_ == seen.version;
  }

 private:
  friend class LongWait;
  void begin() {
    const std::lock_guard lock(mutex_);
    ++version_;
    threads_.push_back(pthread_self());
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ++version_;
    const auto is_this = [](pthread_t thread) { return pthread_equal(thread, pthread_self()) != 0; };
    threads_.erase(std::find_if(threads_.begin(), threads_.end(), is_this));
  }

  mutable std::mutex mutex_;
  std::uint64_t version_ = 0;
  std::vector<pthread_t> threads_;
};

// One thread's wait, which is long from when that is said.
class LongWait {
 public:
  explicit LongWait(LongWaits& waits) : waits_(waits) {}
  ~LongWait() { end(); }
  LongWait(const LongWait&) = delete;
  LongWait& operator=(const LongWait&) = delete;

  void begin() {
    if (!std::exchange(is_long_, true)) waits_.begin();
  }
  void end() {
    if (std::exchange(is_long_, false)) waits_.end();
  }
  bool is_long() const { return is_long_; }

 private:
  LongWaits& waits_;
  bool is_long_ = false;
};

}  // namespace ciranda
