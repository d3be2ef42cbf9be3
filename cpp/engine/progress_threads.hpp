// ProgressThreads: decides which thread runs the progress loop, and when: a thread that waits, a thread that submits
// (for a few iterations), or the background thread, if there is work and none of these runs it. At any moment at most
// one thread runs the loop, the holder of the progress lock.
//
// The thread that runs the loop disarms the mesh's doorbell. Before it releases the lock, it arms the doorbell and runs
// one more iteration, so that any later message wakes the background thread, which sleeps in Mesh::sleep. During a
// burst of submissions the doorbell stays disarmed: the background thread runs the loop at least every 250 us instead.
//
// Called by Engine; any thread, unless the comment of a function says otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>
#include <utility>

#include "base/thread_annotations.hpp"
#include "call/callback_threads.hpp"
#include "call/operation.hpp"
#include "engine/progress_loop.hpp"
#include "engine/world_parts.hpp"
#include "progress/back_off.hpp"
#include "progress/long_waits.hpp"
#include "progress/progress_lock.hpp"
#include "progress/submission_coalescing.hpp"
#include "progress/waits.hpp"

namespace ciranda {

class ProgressThreads {
 public:
  // Starts the background thread. `world` outlives this. Without `may_others_call`, the engine assumes that another
  // thread can always make a call.
  ProgressThreads(WorldParts& world, MayOthersCall may_others_call);

  // Says goodbye to the peers, fails pending operations, and ends the background thread. Returns when every live peer
  // has answered, or after the link timeout (at least two seconds). Returns false at once if it was called before.
  // REQUIRES: called before this object is destroyed.
  bool end();

  CallbackThreads& callbacks() { return callbacks_; }
  Waits& waits() { return waits_; }
  LongWaits& long_waits() { return long_waits_; }

  // Takes in the submission and runs the loop, or leaves it to a thread that waits, to a later submission, or to the
  // background thread.
  void submit(Submission&& submission);

  // Calls act(loop, n_looks) if no other thread has the lock, the queue of submissions is empty, and the world has not
  // ended. `n_looks`: how often it may poll a direct round. The doorbell stays as it is (armed, except in a burst) and
  // nothing is received: a message that arrives meanwhile wakes the background thread. So does a rank that closes a
  // round at which this rank's call is.
  template <typename Act>
  void at_once(Act act) {
    if (!lock_.try_take()) return;
    {
      const Holder holder(*this);
      if (!has_ended_.load() && loop_.submissions().is_empty()) act(loop_, n_looks_at_once_);
    }
    look_again_if_needed();
  }

  // Waits for the lock, calls `ask` with the loop, and returns its result.
  template <typename Ask>
  auto held(Ask ask) {
    const auto hold_and_ask = [&] {
      lock_.take();
      const Holder holder(*this);
      return ask(std::as_const(loop_));
    };
    auto found = hold_and_ask();
    look_again_if_needed();
    return found;
  }

  // Runs a few iterations if no other thread has the lock.
  void run_in_passing(bool is_waited_for);

  // Runs the loop for a thread that waits. Returns whether the operation is done. Gives up at the deadline, or when
  // nothing has moved for the spin time: the next message then wakes the background thread, which goes on.
  bool run_until_done(const Operation& operation, const std::optional<TimePoint>& deadline, Waiting& waiting);

  // Reports a standstill to the coordinator if no other thread of the process can make a call. A thread in a long wait
  // calls this every kLookInterval (at first more often if its call is a rare one), and so does the background thread
  // while calls are pending.
  void look_whether_all_wait();
  static constexpr auto kLookInterval = std::chrono::seconds(1);
  // A thread has given up a long wait. Withdraws the report of a standstill.
  void wait_no_longer();

 private:
  // At the end of its scope, releases the lock and wakes a thread for the callbacks of the operations that this thread
  // has completed.
  struct SCOPED_CAPABILITY Holder {
    explicit Holder(ProgressThreads& of) REQUIRES(progress_lock) : threads(of) {}
    ~Holder() RELEASE() {
      threads.lock_.give_back();
      threads.callbacks_.flush();
    }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    ProgressThreads& threads;
  };

  // If a thread submits or begins to wait while another holds the lock, the holder may have checked for that already
  // and miss it. So each holder checks again after it has released the lock.
  bool has_unseen() { return !loop_.submissions().is_empty() || !waits_.are_noticed(); }
  void look_again_if_needed() {
    if (has_unseen()) look_again();
  }
  void look_again();

  template <typename Run>
  bool with_lock(Run run);
  template <typename Run>
  void run_and_arm(Run run) REQUIRES(progress_lock);
  bool iterate() REQUIRES(progress_lock);
  bool arm_when_nothing_moves() REQUIRES(progress_lock);
  bool is_before_background_wakes(std::optional<TimePoint> deadline) REQUIRES(progress_lock);
  std::optional<TimePoint> next_deadline() REQUIRES(progress_lock);
  // True if look_at_ has passed and work is pending. Resets look_at_ if it has passed.
  bool has_to_look() REQUIRES(progress_lock);
  void run_until_nothing_moves() REQUIRES(progress_lock);

  void run_background();
  bool run_in_background();
  void watch_burst();
  void fail_late_submissions();

  Mesh& mesh_;
  const std::chrono::steady_clock::duration spin_;
  const std::chrono::steady_clock::duration goodbye_limit_;
  const bool is_oversubscribed_;
  const int n_looks_at_once_;
  CallbackThreads callbacks_;
  ProgressLoop loop_;
  CoreSharing sharing_;
  ProgressLock lock_;
  SubmissionCoalescing coalescing_;
  Waits waits_;
  LongWaits long_waits_;
  const MayOthersCall may_others_call_;
  std::atomic<int> n_runners_{0};          // threads that wait and run the loop, or try to
  std::atomic<int> n_waiters_running_{0};  // of these, the threads that hold the lock and have not armed the mesh yet
  std::atomic<bool> has_ended_{false};
  // When the background thread wakes by itself. Written under the lock. That thread reads it before it sleeps.
  static constexpr TimePoint kNever = TimePoint::max();
  std::atomic<TimePoint> deadline_{kNever};
  // When the background thread next calls look_whether_all_wait(): if all calls end by callback, no other thread does.
  TimePoint look_at_ GUARDED_BY(progress_lock) = kNever;
  std::thread background_;
};

}  // namespace ciranda
