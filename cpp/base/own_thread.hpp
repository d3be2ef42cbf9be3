// OwnThread: says that the calling thread is one that the engine has started in this process. They call nothing by
// themselves; what callbacks do is for those to know who run them.
//
// Any thread. In a child after fork() there are none of them, and no engine that asks.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace ciranda {

class OwnThread {
 public:
  OwnThread() {
    const std::lock_guard lock(mutex_);
    ids_.push_back(gettid());
  }
  ~OwnThread() {
    const std::lock_guard lock(mutex_);
    ids_.erase(std::find(ids_.begin(), ids_.end(), gettid()));
  }
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

  // The system's numbers of all that there are.
  static std::vector<pid_t> all() {
    const std::lock_guard lock(mutex_);
    return ids_;
  }

 private:
  static inline std::mutex mutex_;
  static inline std::vector<pid_t> ids_;
};

}  // namespace ciranda
