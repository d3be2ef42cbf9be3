// ProgressLock: the right to run the progress loop, held by one thread at a time. It is not recursive: in the thread
// that holds it (for instance in a direct callback that submits), try_take() returns false, and take() is forbidden.
//
// Called by ProgressThreads; any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "base/thread_annotations.hpp"

namespace ciranda {

class ProgressLock {
 public:
  // The bodies are not analysed, because std::mutex has no annotations.
  bool try_take() TRY_ACQUIRE(true, progress_lock) NO_THREAD_SAFETY_ANALYSIS {
    if (owner_.load(std::memory_order_relaxed) == std::this_thread::get_id() || !mutex_.try_lock()) return false;
    owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    return true;
  }
  void take() ACQUIRE(progress_lock) NO_THREAD_SAFETY_ANALYSIS {
    mutex_.lock();
    owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  void give_back() RELEASE(progress_lock) NO_THREAD_SAFETY_ANALYSIS {
    owner_.store({}, std::memory_order_relaxed);
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_{};
};

}  // namespace ciranda
