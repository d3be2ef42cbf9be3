// HostCosts: a host's costs of moving data. Ranks exchange them and choose algorithms by them.
//
// Whole numbers, so that all ranks compute the same results, with any compiler. The defaults are those of a usual
// server on a 10 Gbit/s network; costs_file.hpp keeps measured ones. Plain values.
//
// Called by CostModel, PairCosts, CostsFile, Mesh, bootstrap.hpp, bootstrap_messages.hpp and bindings/python/tables.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace ciranda {

struct HostCosts {
  std::uint64_t call_ns = 5'000;
  std::uint64_t shared_round_ns = 330;
  std::uint64_t copy_fs = 60'000;
  std::uint64_t reduce_fs = 50'000;
  std::uint64_t channel_round_ns = 25'000;
  std::uint64_t link_round_ns = 30'000;
  std::uint64_t message_ns = 1'000;
  std::uint64_t link_fs = 800'000;

  friend bool operator==(const HostCosts&, const HostCosts&) = default;
};

struct HostCost {
  std::string_view name;
  std::uint64_t HostCosts::*value;
  std::uint64_t lowest;
  std::uint64_t highest;
  std::string_view meaning;
};

// The bounds keep every sum and product of the cost model within 64 bits. A femtosecond is 1e-15 s: 50,000 a byte are
// 20 GB/s.
inline constexpr std::uint64_t kMostNs = 1'000'000'000;
inline constexpr std::uint64_t kMostFs = 1'000'000'000;
inline constexpr std::array kHostCosts{
    HostCost{"call_ns", &HostCosts::call_ns, 1, kMostNs, "Agreeing on a call and completing it, whatever it moves."},
    HostCost{"shared_round_ns", &HostCosts::shared_round_ns, 1, kMostNs,
             "Until all ranks of a host have seen that all have come, in shared memory."},
    HostCost{"copy_fs", &HostCosts::copy_fs, 1, kMostFs, "Copying a byte into a slot of shared memory or out of it."},
    HostCost{"reduce_fs", &HostCosts::reduce_fs, 1, kMostFs, "Reading a byte of one input and combining it."},
    HostCost{"channel_round_ns", &HostCosts::channel_round_ns, 1, kMostNs,
             "Until ranks of a host have each other's messages; sleeping and waking included."},
    HostCost{"link_round_ns", &HostCosts::link_round_ns, 1, kMostNs, "Until a message has come to another host."},
    HostCost{"message_ns", &HostCosts::message_ns, 1, 1'000'000,
             "Sending a message and receiving one, for each partner."},
    HostCost{"link_fs", &HostCosts::link_fs, 1, kMostFs, "A byte on the network link of the host."},
};

constexpr bool are_within_bounds(const HostCosts& costs) {
  return std::all_of(kHostCosts.begin(), kHostCosts.end(), [&costs](const HostCost& each) {
    return costs.*each.value >= each.lowest && costs.*each.value <= each.highest;
  });
}

constexpr HostCosts within_bounds(HostCosts costs) {
  for (const HostCost& each : kHostCosts) costs.*each.value = std::clamp(costs.*each.value, each.lowest, each.highest);
  return costs;
}

// The number of bytes that fill a link between hosts until the answer to the first byte arrives.
constexpr std::uint64_t bytes_under_way(const HostCosts& costs) {
  constexpr std::uint64_t kFsPerNs = 1'000'000;
  return 2 * costs.link_round_ns * kFsPerNs / costs.link_fs;
}

// A collective is as slow as its slowest host.
constexpr HostCosts slower_of(const HostCosts& a, const HostCosts& b) {
  HostCosts slower;
  for (const HostCost& each : kHostCosts) slower.*each.value = std::max(a.*each.value, b.*each.value);
  return slower;
}

}  // namespace ciranda
