// StagingChoice: the technique by which a process writes staging buffers over lines that other cores have read last.
// Through the caches, each store first takes its line back from the reader's core; past the caches it does not, but the
// reader then reads from memory. The first is faster where cores are near, the second where they are far apart, and a
// virtual machine's cores move. So a copy is timed now and then, half of it by each technique.
//
// Any thread. The bytes are the same with each.
//
// Called by copy_bytes.hpp, PairCosts, Config, connect() and bindings/python/tables.cc.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/exported.hpp"

namespace ciranda {

enum class StagingCopy : std::uint8_t { kCached, kPastCaches };
inline constexpr std::array<std::string_view, 2> kStagingCopies{"cached", "past-caches"};  // by number

constexpr std::string_view to_string(StagingCopy technique) {
  return kStagingCopies[static_cast<std::size_t>(technique)];
}
constexpr std::optional<StagingCopy> staging_copy_named(std::string_view name) {
  for (std::size_t i = 0; i < kStagingCopies.size(); ++i) {
    if (kStagingCopies[i] == name) return static_cast<StagingCopy>(i);
  }
  return std::nullopt;
}

class StagingChoice {
 public:
  using Duration = std::chrono::steady_clock::duration;

  static constexpr std::uint32_t kCopiesBetweenTrials = 128;  // a trial costs about one copy: less than a hundredth

  StagingCopy current() const { return current_.load(std::memory_order_relaxed); }

  // From now on uses only this technique; none: as measured, at first through the caches.
  void prescribe(std::optional<StagingCopy> technique) {
    current_.store(technique.value_or(StagingCopy::kCached), std::memory_order_relaxed);
    n_until_trial_.store(technique ? kNever : 0, std::memory_order_relaxed);
    is_doubted_.store(false, std::memory_order_relaxed);
  }

  // Counts a copy. True if it must be timed.
  bool is_trial_due() {
    const std::uint32_t n = n_until_trial_.load(std::memory_order_relaxed);
    if (n == kNever) return false;
    n_until_trial_.store(n == 0 ? kCopiesBetweenTrials : n - 1, std::memory_order_relaxed);
    return n == 0;
  }

  // The times of the halves of a copy. The technique changes after two trials in a row that favour the other: a single
  // one may have been interrupted.
  void note_trial(Duration cached, Duration past_caches) {
    const StagingCopy better = past_caches * kLeastGain < cached ? StagingCopy::kPastCaches : StagingCopy::kCached;
    const bool is_confirmed = better == current();
    if (is_confirmed || is_doubted_.load(std::memory_order_relaxed)) {
      current_.store(better, std::memory_order_relaxed);
      is_doubted_.store(false, std::memory_order_relaxed);
    } else {
      is_doubted_.store(true, std::memory_order_relaxed);
      n_until_trial_.store(0, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::uint32_t kNever = ~std::uint32_t{0};
  // Reading bytes that were written past the caches takes up to twice as long, so writing has to gain more than that.
  static constexpr int kLeastGain = 2;

  std::atomic<StagingCopy> current_{StagingCopy::kCached};
  std::atomic<std::uint32_t> n_until_trial_{0};
  std::atomic<bool> is_doubted_{false};
};

// The choice of this process.
CIRANDA_EXPORTED StagingChoice& staging_choice();

}  // namespace ciranda
