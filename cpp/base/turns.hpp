// Turns: two threads, of one process or of two that share memory, act in turn. A cache line says whose turn it is, so
// that giving it to the other and having it back takes twice the way of a line between their cores.
//
// Threads: one a side. Failure: none. What one side wrote before it passed the turn on, the other sees.
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

  // REQUIRES: the word is 0 when the first of them comes, outlives this, and is alone on its cache lines.
  Turns(std::atomic<std::uint64_t>& word, Side side) : word_(&word), next_(side == Side::kFirst ? 0 : 1) {}

  // Until it is this side's turn; false where it is not by then.
  bool await(Clock::time_point deadline) const {
    constexpr int kSpins = 4096;  // more than any way of a line takes
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

  // The way of the line, in nanoseconds: the best of some tries. Both sides call it; none where the other does not come
  // by then, and both are then of no further use.
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
  std::uint64_t next_;  // what the word is at this side's next turn
};

}  // namespace ciranda
