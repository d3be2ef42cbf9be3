// SubmissionCoalescing: which submissions run the progress loop in passing. Of many small ones, one soon after the
// other, most leave it to a later one, and travel with that.
//
// Should no later one come, what was left must not lie there for long: nobody may ever wait for it. So a burst is
// *watched*: the background thread, woken once, runs the progress loop, sleeps for half as long as the burst has taken
// so far, 30 to 250 us, and runs it again, until nothing has been left since it last did. So what is left last waits
// for a part of the time in which the burst was submitted. A thread that submits and waits, again and again, is in a
// burst too, in which its waits take in what it has left.
//
// Threads: any. Those that submit at the same time may each take the other's for its own, which costs no more than
// time.
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

  // How long the watcher sleeps at most.
  static constexpr std::chrono::microseconds kMostBetweenLooks{250};

  enum class Choice : std::uint8_t {
    kProgress,
    kLeave,
    kLeaveAndWake,  // the background thread, to watch
  };

  // REQUIRES: the submission is where the next iteration takes it in.
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

  // The progress loop was run in passing, if its lock was free, or by a thread that waited.
  void progressed(TimePoint now) {
    last_iteration_.store(now.time_since_epoch(), std::memory_order_relaxed);
    n_left_bytes_.store(0, std::memory_order_relaxed);
  }

  bool is_watched() const { return is_watched_.load(); }

  // The watcher's. `take_in` what was left, then `sleep` for so long at most, until nothing is left any more or `sleep`
  // returns false. Who looks for submissions after this sees all that were left.
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

  // If the burst goes on.
  std::chrono::nanoseconds until_next_look(TimePoint now) const {
    const auto lasts = now - TimePoint(began_.load(std::memory_order_relaxed));
    return std::clamp<std::chrono::nanoseconds>(lasts / 2, kLeastBetweenLooks, kMostBetweenLooks);
  }

 private:
  using Duration = std::chrono::steady_clock::duration;

  // Short beside what data takes to travel, long beside what a submission takes.
  static constexpr std::chrono::microseconds kBetweenIterations{30};
  // Where less passes between two looks, a burst would end between two of its submissions.
  static constexpr std::chrono::microseconds kLeastBetweenLooks = kBetweenIterations;
  static constexpr std::size_t kMostLeftBytes = AgreementLimits{}.left_bytes;
  // A layer brings two or three gradients at once; to wake a thread for these does not pay.
  static constexpr int kQuickInARow = 3;

  std::atomic<Duration> last_iteration_{Duration::min() / 2};
  std::atomic<std::size_t> n_left_bytes_{0};  // since then
  std::atomic<int> n_quick_{0};               // submissions in a row, each soon after an iteration
  std::atomic<std::uint64_t> n_left_{0};      // submissions
  std::atomic<bool> is_watched_{false};
  std::atomic<Duration> began_{Duration::zero()};  // when it was first watched
};

}  // namespace ciranda
