// Callbacks: how the engine calls functions of the user.
//
// A *direct* callback runs on the thread that completes the operation, usually the one that runs the progress loop,
// under the progress lock. Nothing progresses until it returns, so it may hand work to other threads but not wait for
// the engine. All other callbacks run on threads of their own (CallbackThreads).
//
// Called by Operation, CallbackThreads and Engine; any thread. Failure: an exception of a callback is reported on
// standard error, and does not propagate.
#pragma once

#include <functional>

#include "base/status.hpp"

namespace ciranda {

// Runs the callback.
void call_back(const std::function<void()>& callback) noexcept;

// Marks this thread as inside a direct callback, during the lifetime of the object.
class DirectCallback {
 public:
  DirectCallback();
  ~DirectCallback();
  DirectCallback(const DirectCallback&) = delete;
  DirectCallback& operator=(const DirectCallback&) = delete;

  // InvalidArgument if this thread is inside a direct callback, where it must not wait for the engine. Also reported on
  // standard error, because some callers cannot return a message. `what`: the refused action, as "wait".
  static Status refuse(const char* what);

 private:
  bool was_in_one_;
};

}  // namespace ciranda
