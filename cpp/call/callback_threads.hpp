// CallbackThreads: threads that run the callbacks of operations, so that a slow callback delays nothing else.
//
// There are as many threads as slow callbacks, and one more while callbacks are queued. Before a thread runs a
// callback, it makes sure that another thread stands by for the rest of the queue, since the callback may wait for one
// of those. The other thread starts if the first does not return to the queue within 100 us. Threads are created on
// demand, end after an idle time, and block all signals. Callbacks start in the order in which they were posted, and
// may run concurrently.
//
// Called by Engine, which posts, and ProgressThreads, which posts lines of the log, and flushes; any thread, those of
// this object included. If the system cannot create a thread, flush() runs the callbacks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace ciranda {

class CallbackThreads {
 public:
  using Callback = std::function<void()>;

  explicit CallbackThreads(std::chrono::nanoseconds until_idle_ends = std::chrono::seconds(1));
  ~CallbackThreads();  // calls finish()
  CallbackThreads(const CallbackThreads&) = delete;
  CallbackThreads& operator=(const CallbackThreads&) = delete;

  // Queues a callback. The next flush() wakes one thread for all callbacks posted before. Never blocks.
  void post(Callback callback);
  void flush();
  // Whether no callback runs or is queued.
  bool are_idle() const;

  // Returns once all posted callbacks have run and all threads have ended. If a callback calls this, it does not wait
  // for that callback or its thread; that thread ends after the callback.
  void finish();

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object in finish()
};

}  // namespace ciranda
