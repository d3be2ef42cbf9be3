// PairCosts: the costs for two ranks of a host to exchange data through shared memory, measured when they joined
// (transport/pair_probe.hpp); and the HostCosts that follow from them.
//
// Pure; whole numbers, as HostCosts.
//
// Used by Mesh, probe_pairs(), join_world(), EngineHandle and LineProbe.
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

// One rank's costs with one other rank.
struct PairCosts {
  std::uint64_t line_ns = 0;  // latency of a cache line from core to core
  // The time per byte of each technique: to write over bytes that the other rank has read, plus to read bytes that the
  // other rank has written with the same technique.
  std::array<std::uint64_t, kStagingCopies.size()> hand_over_fs;
  std::uint64_t read_fs = 0;  // the reading part of kCached's time

  constexpr std::uint64_t of(StagingCopy technique) const { return hand_over_fs[static_cast<std::size_t>(technique)]; }
  friend bool operator==(const PairCosts&, const PairCosts&) = default;
};

// kNear: two cores share a cache. kFar: they do not. The cores of a virtual machine may move, so this may change.
enum class Distance : std::uint8_t { kNear, kFar };
constexpr std::string_view to_string(Distance distance) { return distance == Distance::kNear ? "near" : "far"; }
constexpr Distance distance_of(double line_ns) {
  constexpr double kMostNearNs = 120;  // measured: 25 to 70 near, 200 to 250 far
  return line_ns <= kMostNearNs ? Distance::kNear : Distance::kFar;
}

// The largest of each cost that a rank has measured with others. None if it has measured with no rank.
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

// The default costs, with the costs of shared memory replaced by values derived from measurements.
//
// Only bytes that cross to the other core take time. In a reduction of two ranks, one shot hands over all bytes. Two
// shot hands over half of the input, and half of the result is read, from lines that its writer had just read: (hand
// over + read) / 2. The cost model has copy + 2 reduce for one shot, and 3/2 copy + reduce for two shot.
constexpr HostCosts host_costs_of(const PairCosts& slowest) {
  constexpr std::uint64_t kLinesOfARound = 2;  // the writer fetches a counter's line, then the reader fetches it
  const std::uint64_t hand_over_fs = slowest.of(StagingCopy::kCached);
  HostCosts costs;
  costs.shared_round_ns = kLinesOfARound * slowest.line_ns;
  costs.copy_fs = slowest.read_fs / 2;
  costs.reduce_fs = (hand_over_fs - std::min(hand_over_fs, slowest.read_fs / 2)) / 2;
  return within_bounds(costs);
}

}  // namespace ciranda
