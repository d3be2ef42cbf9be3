// PairCosts: what it costs two ranks of a host to hand each other data through shared memory, as they measured it when
// they joined (transport/pair_probe.hpp); and what follows from it.
//
// Pure; whole numbers, as HostCosts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/host_costs.hpp"
#include "base/staging_choice.hpp"

namespace ciranda {

// One rank's, with another.
struct PairCosts {
  std::uint64_t line_ns = 0;  // the way of a cache line from core to core
  // A byte written by each technique over what the other has read, and read by this rank of what that has so written.
  std::array<std::uint64_t, kStagingCopies.size()> hand_over_fs;
  std::uint64_t read_fs = 0;  // of kCached, the part of reading

  constexpr std::uint64_t of(StagingCopy technique) const { return hand_over_fs[static_cast<std::size_t>(technique)]; }
  friend bool operator==(const PairCosts&, const PairCosts&) = default;
};

// Cores that share a cache, and those that do not. A virtual machine's may be moved from one to the other.
enum class Distance : std::uint8_t { kNear, kFar };
constexpr std::string_view to_string(Distance distance) { return distance == Distance::kNear ? "near" : "far"; }
constexpr Distance distance_of(double line_ns) {
  constexpr double kMostNearNs = 120;  // what was seen: 25 to 70 near, 200 to 250 far
  return line_ns <= kMostNearNs ? Distance::kNear : Distance::kFar;
}

// Of what a rank has measured with others: the most of each. None if it has with nobody.
constexpr std::optional<PairCosts> slowest_of(std::span<const std::optional<PairCosts>> measured) {
  std::optional<PairCosts> slowest;
  for (const std::optional<PairCosts>& each : measured) {
    if (!each) continue;
    if (!slowest) slowest = *each;
    slowest->line_ns = std::max(slowest->line_ns, each->line_ns);
    slowest->read_fs = std::max(slowest->read_fs, each->read_fs);
    for (std::size_t i = 0; i < kStagingCopies.size(); ++i) {
      slowest->hand_over_fs[i] = std::max(slowest->hand_over_fs[i], each->hand_over_fs[i]);
    }
  }
  return slowest;
}

// The assumed costs, those of memory replaced by what follows from what was measured.
//
// What takes time is the bytes that cross to the other core. Of each byte of a reduction of two ranks, one shot hands
// all over. Two shot hands over a half of the input, and has a half of the result read, written where its writer had
// just read: (hand over + read) / 2. The cost model has copy + 2 reduce for one, and 3/2 copy + reduce for the other.
constexpr HostCosts host_costs_of(const PairCosts& slowest) {
  constexpr std::uint64_t kLinesOfARound = 2;  // a counter taken back from who looks at it, and fetched there again
  const std::uint64_t hand_over_fs = slowest.of(StagingCopy::kCached);
  HostCosts costs;
  costs.shared_round_ns = kLinesOfARound * slowest.line_ns;
  costs.copy_fs = slowest.read_fs / 2;
  costs.reduce_fs = (hand_over_fs - std::min(hand_over_fs, slowest.read_fs / 2)) / 2;
  return within_bounds(costs);
}

}  // namespace ciranda
