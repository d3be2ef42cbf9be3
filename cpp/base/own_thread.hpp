// OwnThread: registers the calling thread as one that the engine has started in this process. Such threads make no
// calls by themselves; the code that runs callbacks accounts for calls of callbacks.
//
// Any thread. A child after fork() has no such threads, and no engine that uses the list.
//
// Called by CallbackThreads, log_watch.cc, ProgressThreads, RecordReader and stack_watch.cc, on their threads; all() by
// sleepers.hpp.
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/exported.hpp"

namespace ciranda {

class OwnThread {
 public:
  CIRANDA_EXPORTED OwnThread();
  CIRANDA_EXPORTED ~OwnThread();
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

  // The system's numbers of all registered threads.
  static std::vector<pid_t> all();
};

}  // namespace ciranda
