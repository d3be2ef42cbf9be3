// CompletionQueue: for threads that wait for whichever of many operations is done, or late, first.
//
// Operations are known by keys, which the caller chooses and uses once. Each comes out of next() once.
// Threads: any. Whoever tells it that an operation is done never waits for those that sleep in next().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace ciranda::python {

class CompletionQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Deadline = std::optional<Clock::time_point>;

  // Of an operation that done() will be called for. At the deadline next() returns it all the same.
  void expect(std::uint64_t key, const Deadline& deadline = {});
  void done(std::uint64_t key);

  // Sleeps until there is one. None: the queue is closed, and nothing that is done or late is left.
  std::optional<std::uint64_t> next();
  void close();

  // Whether next() of any queue has yet to return something.
  static bool are_any_expected() { return n_expected_.load() > 0; }

 private:
  using ByDeadline = std::multimap<Clock::time_point, std::uint64_t>;

  void take_what_is_late(Clock::time_point now);

  static inline std::atomic<int> n_expected_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::uint64_t, ByDeadline::iterator> expected_;  // end(): no deadline
  ByDeadline by_deadline_;
  std::deque<std::uint64_t> ready_;
  bool is_closed_ = false;
};

}  // namespace ciranda::python
