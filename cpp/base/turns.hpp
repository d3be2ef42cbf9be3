// Turns: two threads, of one process or of two that share memory, act in turn. One cache line holds the turn, so
// passing the turn and getting it back takes twice the latency of a line between their cores.
//
// Threads: one on each side. Failure: none. A side sees all writes of the other side before that side passed the turn.
//
// Called by probe_pairs() and LineProbe.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

namespace ciranda {

class Turns {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Side : std::uint8_t { kFirst, kSecond };

  // REQUIRES: the word is 0 when the first side arrives, outlives this object, and is alone on its cache lines.
  Turns(std::atomic<std::uint64_t>& word, Side side) : word_(&word), next_(side == Side::kFirst ? 0 : 1) {}

  // Waits until it is this side's turn. False if that does not happen by the deadline.
  bool await(Clock::time_point deadline) const {
    constexpr int kSpins = 4096;  // longer than any latency of a line
    for (int n_spins = 0; word_->load(std::memory_order_acquire) != next_; ++n_spins) {
      if (n_spins < kSpins) continue;
      if (Clock::now() >= deadline) return false;
      std::this_thread::yield();
      n_spins = 0;
    }
    return true;
  }

  // REQUIRES: it is this side's turn.
  void pass() {
    word_->store(next_ + 1, std::memory_order_release);
    next_ += 2;
  }

  // The latency of the line in nanoseconds, the best of several tries. Both sides call it. None if the other does not
  // arrive by the deadline; both objects are then of no further use.
  std::optional<double> one_way_ns(Clock::time_point deadline) {
    constexpr int kTries = 5;
    constexpr int kTurns = 100;
    double best = 1e9;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      if (!await(deadline)) return std::nullopt;
      const auto begin = Clock::now();
      for (int i = 0; i < kTurns; ++i) {
        pass();
        if (!await(deadline)) return std::nullopt;
      }
      const std::chrono::duration<double, std::nano> taken = Clock::now() - begin;
      best = std::min(best, taken.count() / (2 * kTurns));
    }
    pass();
    return best;
  }

 private:
  std::atomic<std::uint64_t>* word_;
  std::uint64_t next_;  // the value of the word at this side's next turn
};

}  // namespace ciranda
