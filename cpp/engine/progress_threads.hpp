// ProgressThreads: which thread runs the progress loop, and when: one that waits, one that submits, in passing, or the
// background thread, where none of these does and there is work. At any moment it is one thread at most, the holder of
// the progress lock.
//
// A thread that runs the loop has disarmed the mesh's doorbell. When it gives the lock back it arms the doorbell and
// looks once more, so that the background thread, asleep in Mesh::sleep, is woken by whatever comes. It leaves that in
// a burst of submissions, which the background thread watches: it looks by itself, every 250 us at least.
//
// Any thread, but where it says otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>
#include <utility>

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
  // Starts the background thread. `world` outlives this. Without `may_others_call` a thread may always come.
  ProgressThreads(WorldParts& world, MayOthersCall may_others_call);

  // Tells the others, fails what is pending, ends the background thread. Returns once every living peer knows, or after
  // two seconds; false at once if a thread has called it before. REQUIRES: called before the end of this object's life.
  bool end();

  CallbackThreads& callbacks() { return callbacks_; }
  Waits& waits() { return waits_; }
  LongWaits& long_waits() { return long_waits_; }

  // Takes it in, and goes on with it, or leaves that to a thread that waits, to a later submission, or the background.
  void submit(Submission&& submission);

  // Calls `act` with the loop, and how often it may look at a direct round, if that can be now: no other thread has the
  // lock, nothing that was submitted before is still to be taken in, and the world has not ended. The mesh stays as it
  // is, armed but in a burst: nothing is received, and whatever comes meanwhile wakes the background thread; so does
  // who closes a round to which a call has come.
  template <typename Act>
  void at_once(Act act) {
    if (!lock_.try_take()) return;
    {
      const Holder holder(*this);
      if (!has_ended_.load() && loop_.submissions().is_empty()) act(loop_, n_looks_at_once_);
    }
    see_what_came_late();
  }

  // What `ask` finds, as soon as this thread has the lock.
  template <typename Ask>
  auto held(Ask ask) {
    const auto hold_and_ask = [&] {
      lock_.take();
      const Holder holder(*this);
      return ask(std::as_const(loop_));
    };
    auto found = hold_and_ask();
    see_what_came_late();
    return found;
  }

  // A few iterations, if no other thread has the lock.
  void run_in_passing(bool is_waited_for);

  // Runs the loop for a thread that waits. Returns whether the operation is done. Gives up at the deadline, and when
  // nothing has moved for the spin time: then the background thread, woken by whatever comes next, goes on.
  bool run_until_done(const Operation& operation, const std::optional<TimePoint>& deadline, Waiting& waiting);

  // Each kLookInterval, while this thread is in a long wait (at first more often, of a call that is rare), or is the
  // background thread and calls are pending: if no other thread of the process can make a call, the other ranks hear
  // of it.
  void look_whether_all_wait();
  static constexpr auto kLookInterval = std::chrono::seconds(1);
  // A thread was in a long wait, and has given it up.
  void wait_no_longer();

 private:
  // Gives the lock back, then wakes a thread for the callbacks of what this thread has completed. REQUIRES: the lock.
  struct Holder {
    explicit Holder(ProgressThreads& of) : threads(of) {}
    ~Holder() {
      threads.lock_.give_back();
      threads.callbacks_.flush();
    }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    ProgressThreads& threads;
  };

  // A submission pushed, or a wait begun, while the lock was held may have been seen by nobody: that thread could not
  // take the lock and the holder had looked already. So whoever gives it back looks again.
  bool is_something_unseen() { return !loop_.submissions().is_empty() || !waits_.are_heeded(); }
  void see_what_came_late() {
    if (is_something_unseen()) look_again();
  }
  void look_again();

  template <typename Run>
  bool with_lock(Run run);
  // REQUIRES: the lock.
  template <typename Run>
  void run_and_arm(Run run);
  // REQUIRES: the lock.
  bool iterate();
  bool arm_when_nothing_moves();
  bool comes_before_background_wakes(std::optional<TimePoint> deadline);
  std::optional<TimePoint> next_deadline();
  // Whether that is now, once.
  bool has_to_look();
  void run_until_nothing_moves();

  void run_background();
  bool run_in_background();
  void watch_burst();
  void fail_late_submissions();

  Mesh& mesh_;
  const std::chrono::steady_clock::duration spin_;
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
  std::atomic<int> n_waiters_running_{0};  // of those, who have the lock, and have yet to arm the mesh
  std::atomic<bool> has_ended_{false};
  // When the background thread wakes by itself. Changed under the lock; read by it before it sleeps.
  static constexpr TimePoint kNever = TimePoint::max();
  std::atomic<TimePoint> deadline_{kNever};
  // When the background thread looks whether all wait: no other does where all calls end by callback. With the lock.
  TimePoint look_at_ = kNever;
  std::thread background_;
};

}  // namespace ciranda
