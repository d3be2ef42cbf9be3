// CompletionQueue: returns operations in the order in which they complete, or pass their deadline.
//
// Operations are identified by keys, which the caller chooses and uses once. next() returns each key once.
// Threads: any. done() never waits for threads that sleep in next().
//
// Called by QueueHandle; types used by callers.hpp.
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

  // Adds an operation. next() returns it after done(), or at the deadline, whichever is first.
  void expect(std::uint64_t key, const Deadline& deadline = {});
  void done(std::uint64_t key);

  // Sleeps until an operation is done or late. nullopt if the queue is closed and no such operation is left.
  std::optional<std::uint64_t> next();
  void close();

  // True if an operation of any queue has not been returned by next() yet.
  static bool are_any_expected() { return n_expected_.load() > 0; }

 private:
  using ByDeadline = std::multimap<Clock::time_point, std::uint64_t>;

  void take_what_is_late(Clock::time_point now);

  static inline std::atomic<int> n_expected_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::uint64_t, ByDeadline::iterator> expected_;  // by_deadline_.end() if it has no deadline
  ByDeadline by_deadline_;
  std::deque<std::uint64_t> ready_;
  bool is_closed_ = false;
};

}  // namespace ciranda::python
