// OwnThread: counts the threads that the engine has started in this process. They call nothing by themselves; what
// callbacks do is for those to know who run them.
//
// Any thread. In a child after fork() there are none of them, and no engine that asks.
#pragma once

#include <atomic>

namespace ciranda {

class OwnThread {
 public:
  OwnThread() { n_.fetch_add(1); }
  ~OwnThread() { n_.fetch_sub(1); }
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

  static int count() { return n_.load(); }

 private:
  static inline std::atomic<int> n_{0};
};

}  // namespace ciranda
