// Waits: counts the threads in wait(), and knows whether the holder of the progress lock has noticed all of them.
//
// Called by ProgressThreads and Engine::wait(), when_done(); any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/thread_annotations.hpp"

namespace ciranda {

class Waits {
 public:
  bool are_any() const { return n_waiting_.load() > 0; }

  // The holder of the lock has noticed all waits that have begun by now.
  void notice_all() REQUIRES(progress_lock) { n_noticed_.store(n_begun_.load()); }
  // True if no wait has begun since the last notice_all().
  bool are_noticed() const { return n_begun_.load() == n_noticed_.load(); }

 private:
  friend class Waiting;
  std::atomic<int> n_waiting_{0};
  std::atomic<std::uint64_t> n_begun_{0};
  std::atomic<std::uint64_t> n_noticed_{0};
};

// Counts one thread in wait(). The wait ends when its operation is done, even if the thread still holds the lock.
class Waiting {
 public:
  explicit Waiting(Waits& waits) : waits_(waits) {
    waits_.n_waiting_.fetch_add(1);
    waits_.n_begun_.fetch_add(1);
  }
  ~Waiting() { end(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  void end() {
    if (!std::exchange(has_ended_, true)) waits_.n_waiting_.fetch_sub(1);
  }

 private:
  Waits& waits_;
  bool has_ended_ = false;
};

}  // namespace ciranda
