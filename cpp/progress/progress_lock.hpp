// ProgressLock: the right to run the progress loop, of one thread at a time. A thread that holds it may not ask for it
// again (a callback that submits does ask: it is refused).
//
// Any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

namespace ciranda {

class ProgressLock {
 public:
  bool try_take() {
    if (owner_.load(std::memory_order_relaxed) == std::this_thread::get_id() || !mutex_.try_lock()) return false;
    owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    return true;
  }
  void take() {
    mutex_.lock();
    owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  void give_back() {
    owner_.store({}, std::memory_order_relaxed);
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_{};
};

// Gives a taken lock back at the end of the scope.
class ProgressLockHolder {
 public:
  explicit ProgressLockHolder(ProgressLock& lock) : lock_(lock) {}
  ~ProgressLockHolder() { lock_.give_back(); }
  ProgressLockHolder(const ProgressLockHolder&) = delete;
  ProgressLockHolder& operator=(const ProgressLockHolder&) = delete;

 private:
  ProgressLock& lock_;
};

}  // namespace ciranda
