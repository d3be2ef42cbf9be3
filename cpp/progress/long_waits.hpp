// LongWaits: the threads that have slept in wait() for a long time and that only the end of their operation can wake.
// A rank is at a standstill if no other thread of it could make a call.
//
// Called by ProgressThreads and Engine::wait(), on threads that wait and the background thread: are_still() with the
// progress lock, the others without.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "base/may_others_call.hpp"

namespace ciranda {

class LongWaits {
 public:
  struct Seen {
    std::uint64_t version = 0;  // changes whenever a long wait begins or ends
    std::vector<WaitingThread> threads;
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
    threads_.push_back({pthread_self(), gettid()});
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ++version_;
    const auto is_this = [](const WaitingThread& other) { return other.id == gettid(); };
    threads_.erase(std::find_if(threads_.begin(), threads_.end(), is_this));
  }

  mutable std::mutex mutex_;
  std::uint64_t version_ = 0;
  std::vector<WaitingThread> threads_;
};

// One thread's wait. It is a long wait from begin() on.
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
