// CallbackThreads: threads that run the callbacks of operations, so that what these do, and however long it takes,
// holds up nothing else.
//
// There are as many threads as callbacks that take their time, and one more while others are queued: before a thread
// begins with one it sees to it that another stands by for the rest, as the callback may wait for one of them. That one
// begins when the first has not come back to the queue for 100 us. Threads are made when there is something to run, end
// when there has been nothing for a while, and get no signals. Callbacks begin in the order in which they were posted,
// and may run at the same time.
//
// Threads: any; also those of this object. Where the system gives no thread for a callback it runs in flush().
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace ciranda {

class CallbackThreads {
 public:
  using Callback = std::function<void()>;

  explicit CallbackThreads(std::chrono::nanoseconds until_idle_ends = std::chrono::seconds(1));
  ~CallbackThreads();  // finish()
  CallbackThreads(const CallbackThreads&) = delete;
  CallbackThreads& operator=(const CallbackThreads&) = delete;

  // Has a thread run it; which is woken by the next flush(), one for all that was posted before. Never blocks.
  void post(Callback callback);
  void flush();
  // No callback runs, or is to.
  bool are_idle() const;

  // Returns once all that was posted has run and all threads have ended. A callback that calls this does not count, nor
  // does its thread, which ends with it.
  void finish();

 private:
  class State;
  std::shared_ptr<State> state_;  // which threads share that outlive this, as they are in finish()
};

}  // namespace ciranda
