// Callbacks: how what the user wants to be called with is called.
//
// A *direct* callback runs on whichever thread completes the operation, usually the one that makes progress, while it
// holds the progress lock. So nothing moves until it returns, and it may hand on but not wait for the engine. Any
// other callback runs on a thread that is there for callbacks (CallbackThreads).
//
// Threads: any. Failure: what a callback throws is told on standard error, and goes no further.
#pragma once

#include <functional>

#include "base/status.hpp"

namespace ciranda {

// Calls it.
void call_back(const std::function<void()>& callback) noexcept;

// Marks this thread as being in a direct callback, for as long as the object lives.
class DirectCallback {
 public:
  DirectCallback();
  ~DirectCallback();
  DirectCallback(const DirectCallback&) = delete;
  DirectCallback& operator=(const DirectCallback&) = delete;

  // InvalidArgument if this thread is in one, and so must not wait for the engine; also told on standard error, as not
  // every caller can hand on a message. `what` is asked for: "wait".
  static Status refuse(const char* what);

 private:
  bool was_in_one_;
};

}  // namespace ciranda
