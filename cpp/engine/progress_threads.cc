#include "engine/progress_threads.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/block_signals.hpp"
#include "base/earliest.hpp"
#include "base/own_thread.hpp"
#include "progress/short_slices.hpp"

namespace ciranda {
namespace {

using Clock = std::chrono::steady_clock;

// The most iterations that a thread runs in passing. Waiting threads or the background thread run the rest.
constexpr int kIterationsInPassing = 4;
constexpr int kIterationsWhileArming = 4;
// How often a direct round is polled before all other work for a waiting thread. The polls take about as long as that
// work.
constexpr int kLooksAtOnce = 50;
// The least time for which a rank that leaves waits for those that do not answer.
constexpr double kLeastGoodbyeSeconds = 2;

}  // namespace

ProgressThreads::ProgressThreads(WorldParts& world, MayOthersCall may_others_call)
    : mesh_(world.mesh),
      spin_(std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double, std::micro>(world.config.spin_microseconds))),
      goodbye_limit_(std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(std::max(kLeastGoodbyeSeconds, world.config.link_timeout_seconds)))),
      is_oversubscribed_(is_oversubscribed(mesh_)),
      n_looks_at_once_(is_oversubscribed_ ? 1 : kLooksAtOnce),
      loop_(world),
      sharing_(mesh_.rank()),
      may_others_call_(std::move(may_others_call)) {
  world.logger.set_post([this](CallbackThreads::Callback write) { callbacks_.post(std::move(write)); });
  const BlockSignals blocked;  // inherited by the thread
  mesh_.arm();
  background_ = std::thread([this] { run_background(); });
}

// --- with the lock

// Takes the lock if it is free, calls `run`, and releases the lock. Returns whether it had the lock. If the world has
// ended, it skips `run`; end() cannot complete while this thread has the lock. During a burst the mesh stays disarmed,
// since the watcher polls soon, unless a thread waits or a call is at a round.
template <typename Run>
bool ProgressThreads::with_lock(Run run) {
  if (!lock_.try_take()) return false;
  const Holder holder(*this);
  run_and_arm(run);
  return true;
}

template <typename Run>
void ProgressThreads::run_and_arm(Run run) {
  if (has_ended_.load()) return;
  mesh_.disarm();
  run();
  if (coalescing_.is_watched() && !loop_.is_at_round()) {
    waits_.notice_all();
    if (!waits_.are_any()) return;
  }
  if (!arm_when_nothing_moves() || is_before_background_wakes(next_deadline())) mesh_.kick();
}

// Runs one iteration, and then wakes a thread for the callbacks of all operations that it has completed.
bool ProgressThreads::iterate() {
  const bool moved = loop_.run();
  callbacks_.flush();
  return moved;
}

// Polls once more after arming, since a message that arrives between the last poll and arming rings no doorbell. Often
// the message is the next call of a faster rank: taking it in at once costs less than waking the background thread.
bool ProgressThreads::arm_when_nothing_moves() {
  for (int i = 0; i < kIterationsWhileArming; ++i) {
    waits_.notice_all();
    mesh_.arm(loop_.stop_looking(waits_.are_any()));  // threads that sleep, or did not get the lock
    if (!iterate()) return true;
  }
  return false;
}

// Returns whether the deadline is earlier than the time at which the background thread next wakes by itself, and if so,
// moves that time to the deadline. The thread then wakes at that time even if nothing is due any more. So calls that
// are always done before their deadlines wake it only once.
bool ProgressThreads::is_before_background_wakes(std::optional<TimePoint> deadline) {
  const bool is_sooner = deadline && *deadline < deadline_.load();
  if (is_sooner) deadline_ = *deadline;
  return is_sooner;
}

std::optional<TimePoint> ProgressThreads::next_deadline() {
  if (may_others_call_ && look_at_ == kNever && loop_.has_work()) look_at_ = Clock::now() + kLookInterval;
  return earliest(loop_.next_deadline(), look_at_ == kNever ? std::nullopt : std::optional(look_at_));
}

bool ProgressThreads::has_to_look() {
  if (look_at_ == kNever || Clock::now() < look_at_) return false;
  look_at_ = kNever;
  return loop_.has_work();
}

void ProgressThreads::look_again() {
  while (has_unseen() && !has_ended_.load()) {
    if (!with_lock([this]() REQUIRES(progress_lock) { iterate(); })) return;
  }
}

// --- threads that submit

// Takes in a call at once if its thread will wait() for it and the queue is empty. If the other ranks have arrived at
// its direct round already, the call is then done without any further work.
void ProgressThreads::submit(Submission&& submission) {
  const Request& request = *submission.request;
  const bool waits_now = request.is_awaited && !request.is_early;
  const std::size_t n_bytes = request.signature.n_bytes();
  bool is_taken = false;
  bool is_at_round = false;
  if (request.is_awaited) {
    at_once([&](ProgressLoop& loop, int n_looks) REQUIRES(progress_lock) {
      is_taken = true;
      is_at_round = loop.submit(std::move(submission), waits_now ? n_looks : 0);
    });
  }
  if (is_at_round || (is_taken && waits_now)) return;
  if (!is_taken) loop_.submissions().push(std::move(submission));
  if (has_ended_.load()) {
    fail_late_submissions();
  } else if (!waits_now) {
    const SubmissionCoalescing::Choice choice = coalescing_.choose(n_bytes, Clock::now());
    if (choice == SubmissionCoalescing::Choice::kLeaveAndWake) mesh_.kick();
    if (choice == SubmissionCoalescing::Choice::kProgress) run_in_passing(false);
  }
}

void ProgressThreads::run_in_passing(bool is_waited_for) {
  const auto run = [&]() REQUIRES(progress_lock) {
    if (is_waited_for) loop_.expect_no_more();
    for (int i = 0; i < kIterationsInPassing && iterate(); ++i) {
    }
  };
  if (with_lock(run)) look_again_if_needed();
  coalescing_.progressed(Clock::now());
}

// --- threads that wait

bool ProgressThreads::run_until_done(const Operation& operation, const std::optional<TimePoint>& deadline,
                                     Waiting& waiting) {
  BackOff back_off(spin_, is_oversubscribed_, sharing_);
  const auto goes_on_after = [&back_off, &deadline](bool moved) {
    if (deadline && Clock::now() >= *deadline) return false;
    if (!moved) return back_off.look_again();
    back_off.renew();
    return true;
  };
  n_runners_.fetch_add(1);
  bool goes_on = true;
  while (goes_on && !operation.is_done()) {
    const bool had_lock = with_lock([&]() REQUIRES(progress_lock) {
      n_waiters_running_.fetch_add(1);
      loop_.expect_no_more(&operation);
      while (goes_on && !operation.is_done() && !has_ended_.load()) goes_on = goes_on_after(iterate());
      if (operation.is_done()) waiting.end();
      n_waiters_running_.fetch_sub(1);  // before arming: a thread that reads 1 or more relies on a later arm()
    });
    if (!had_lock) goes_on = goes_on_after(false);
    if (has_ended_.load()) break;
  }
  n_runners_.fetch_sub(1);
  coalescing_.progressed(Clock::now());
  look_again_if_needed();
  return operation.is_done();
}

// No thread of this rank makes a call unnoticed between the check and the report: a thread that wakes from a long wait
// changes the version in `seen`.
void ProgressThreads::look_whether_all_wait() {
  if (!may_others_call_) return;
  const LongWaits::Seen seen = long_waits_.see();
  bool is_news = false;
  at_once([&](ProgressLoop& loop, int) REQUIRES(progress_lock) { is_news = loop.has_to_stand(); });
  if (!is_news || !callbacks_.are_idle() || may_others_call_(seen.threads, Asked::kAtFirst)) return;
  with_lock([&]() REQUIRES(progress_lock) {
    const bool is_so = loop_.submissions().is_empty() && callbacks_.are_idle() && long_waits_.are_still(seen);
    if (!is_so || !loop_.has_to_stand() || may_others_call_(seen.threads, Asked::kWithLock)) return;
    loop_.report_standstill();
  });
  look_again_if_needed();
}

void ProgressThreads::wait_no_longer() {
  {
    lock_.take();
    const Holder holder(*this);
    run_and_arm([&]() REQUIRES(progress_lock) { loop_.withdraw_standstill(); });
  }
  look_again_if_needed();
}

// --- the background thread

void ProgressThreads::run_background() {
  const OwnThread own;
  prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds, not 50 microseconds
  take_short_slices();            // otherwise a busy thread on this core delays the wake-up by milliseconds
  while (!has_ended_.load()) {
    if (!has_unseen() && !coalescing_.is_watched()) {
      const TimePoint deadline = deadline_;
      mesh_.sleep(time_to(deadline == kNever ? std::nullopt : std::optional(deadline)));
    }
    if (coalescing_.is_watched()) {
      watch_burst();
      // A waiting thread that runs the loop takes in what the burst has left and what has arrived meanwhile, and then
      // arms the mesh. A thread that has armed it already does not count: the doorbell may have rung since, which
      // disarms the mesh, and no thread has reacted to that.
      if (n_waiters_running_.load() > 0) continue;
    }
    if (has_ended_.load()) return;
    if (run_in_background()) look_whether_all_wait();
  }
}

// Returns whether look_whether_all_wait() is due.
bool ProgressThreads::run_in_background() {
  lock_.take();
  const Holder holder(*this);
  mesh_.disarm();
  run_until_nothing_moves();
  const bool has_to_look_now = has_to_look();
  if (!arm_when_nothing_moves()) mesh_.kick();
  // Keeps a deadline even if it is no longer needed. The thread then wakes for it once, instead of being woken by each
  // call to set a new one.
  const bool is_over = deadline_.load() <= Clock::now();
  deadline_ = std::min(is_over ? kNever : deadline_.load(), next_deadline().value_or(kNever));
  return has_to_look_now;
}

// Returns as soon as nothing moves if a waiting thread needs the lock.
void ProgressThreads::run_until_nothing_moves() {
  BackOff back_off(spin_, is_oversubscribed_, sharing_);
  while (!has_ended_.load()) {
    if (iterate()) {
      back_off.renew();
    } else if (n_runners_.load() > 0 || !loop_.has_work() || is_oversubscribed_ || !back_off.look_again()) {
      return;
    }
  }
}

// Takes in the submissions that a burst leaves, until the burst ends. Does nothing while another thread runs the
// progress loop, which takes them in too.
void ProgressThreads::watch_burst() {
  const auto take_in = [this] {
    with_lock([this]() REQUIRES(progress_lock) {
      while (iterate()) {
      }
    });
  };
  const auto sleep = [this](std::chrono::nanoseconds at_most) {
    if (!has_ended_.load()) mesh_.sleep(at_most);
    return !has_ended_.load();
  };
  coalescing_.watch(take_in, sleep);
}

// --- the end

bool ProgressThreads::end() {
  if (has_ended_.exchange(true)) return false;
  mesh_.kick();
  background_.join();
  {
    lock_.take();
    const Holder holder(*this);
    mesh_.disarm();
    loop_.send_bye();
    const auto give_up = Clock::now() + goodbye_limit_;
    while (!loop_.is_bye_known() && Clock::now() < give_up) {
      if (iterate()) continue;
      mesh_.arm();
      if (!iterate()) mesh_.sleep(give_up - Clock::now());
      mesh_.disarm();
    }
    loop_.send_gone();
  }
  fail_late_submissions();
  return true;
}

void ProgressThreads::fail_late_submissions() {
  std::vector<Submission> all;
  loop_.submissions().take(all);
  for (Submission& late : all) {
    late.operation->complete(
        Status::aborted("rank " + std::to_string(mesh_.rank()) + " has shut down; call init() again."));
  }
  callbacks_.flush();
}

}  // namespace ciranda
