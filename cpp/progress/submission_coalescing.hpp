// SubmissionCoalescing: decides which submissions run the progress loop. In a burst of small submissions, most leave it
// to a later submission, and are sent together with that.
//
// If no later submission follows, those left in the queue must not stay there for long, since no thread may ever wait
// for them. So the background thread *watches* a burst: it is woken once, runs the progress loop, sleeps for half the
// burst's duration so far (30 to 250 us), and repeats this until no submission was left since its last run. So the last
// submission waits for only a part of the time that the burst took. A thread that submits and waits in turn is in a
// burst too; its waits take in the submissions that it has left.
//
// Called by ProgressThreads; any thread. Threads that submit at the same time share the counts, which costs only time.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/agreement_limits.hpp"

namespace ciranda {

class SubmissionCoalescing {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // The longest sleep of the watcher.
  static constexpr std::chrono::microseconds kMostBetweenLooks{250};

  enum class Choice : std::uint8_t {
    kProgress,
    kLeave,
    kLeaveAndWake,  // wake the background thread, which watches the burst
  };

  // REQUIRES: the submission is in the queue, or has been taken in.
  Choice choose(std::size_t n_bytes, TimePoint now) {
    const std::size_t n_left_bytes = n_left_bytes_.fetch_add(n_bytes, std::memory_order_relaxed) + n_bytes;
    const bool is_soon = now - TimePoint(last_iteration_.load(std::memory_order_relaxed)) < kBetweenIterations;
    if (!is_soon) n_quick_.store(0, std::memory_order_relaxed);
    if (!is_soon || n_left_bytes >= kMostLeftBytes) return Choice::kProgress;
    n_left_.fetch_add(1);
    if (is_watched_.load()) return Choice::kLeave;
    if (n_quick_.fetch_add(1, std::memory_order_relaxed) + 1 < kQuickInARow) return Choice::kProgress;
    began_.store(now.time_since_epoch(), std::memory_order_relaxed);
    return is_watched_.exchange(true) ? Choice::kLeave : Choice::kLeaveAndWake;
  }

  // A submitting or waiting thread has run the progress loop, or tried to while another thread held the lock.
  void progressed(TimePoint now) {
    last_iteration_.store(now.time_since_epoch(), std::memory_order_relaxed);
    n_left_bytes_.store(0, std::memory_order_relaxed);
  }

  bool is_watched() const { return is_watched_.load(); }

  // Called by the watcher. Repeats take_in(), which takes in the queued submissions, and sleep(duration), until no
  // submission was left meanwhile or sleep() returns false. A thread that checks the queue after this sees all
  // submissions that were left.
  template <typename TakeIn, typename Sleep>
  void watch(TakeIn take_in, Sleep sleep) {
    std::uint64_t n_left_before = 0;
    do {
      n_left_before = n_left_.load();
      take_in();
      if (!sleep(until_next_look(std::chrono::steady_clock::now()))) return;
    } while (n_left_.load() != n_left_before);
    n_quick_.store(0, std::memory_order_relaxed);
    is_watched_.store(false);
  }

  // The duration of the watcher's next sleep, while the burst continues.
  std::chrono::nanoseconds until_next_look(TimePoint now) const {
    const auto lasts = now - TimePoint(began_.load(std::memory_order_relaxed));
    return std::clamp<std::chrono::nanoseconds>(lasts / 2, kLeastBetweenLooks, kMostBetweenLooks);
  }

 private:
  using Duration = std::chrono::steady_clock::duration;

  // Short compared with a data transfer, long compared with a submission.
  static constexpr std::chrono::microseconds kBetweenIterations{30};
  // With a shorter sleep, the watcher would end a burst between two of its submissions.
  static constexpr std::chrono::microseconds kLeastBetweenLooks = kBetweenIterations;
  static constexpr std::size_t kMostLeftBytes = AgreementLimits{}.left_bytes;
  // A layer submits two or three gradients at once; it does not pay to wake a thread for these.
  static constexpr int kQuickInARow = 3;

  std::atomic<Duration> last_iteration_{Duration::min() / 2};
  std::atomic<std::size_t> n_left_bytes_{0};  // submitted since the last iteration
  std::atomic<int> n_quick_{0};               // consecutive submissions soon after an iteration
  std::atomic<std::uint64_t> n_left_{0};      // all submissions soon after an iteration
  std::atomic<bool> is_watched_{false};
  std::atomic<Duration> began_{Duration::zero()};  // when the watch of this burst began
};

}  // namespace ciranda
