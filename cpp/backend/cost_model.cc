#include "backend/cost_model.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/round_up.hpp"
#include "collective/host_parts.hpp"
#include "collective/hosts.hpp"

namespace ciranda {
namespace {

constexpr std::uint64_t kFsPerNs = 1'000'000;
// Above any number that matters; keeps products within 64 bits.
constexpr std::uint64_t kMostSegments = 1'000'000;
// Holds sums of products of 64-bit numbers.
__extension__ using Femtoseconds = unsigned __int128;
// The time of a context switch: if ranks share a core, each must get it once before a round ends.
constexpr std::uint64_t kSwitchNs = 12'000;
// Copies of a byte that goes from one rank to another of its host over a channel: in and out, through the kernel.
constexpr std::uint64_t kCopiesByChannel = 4;

CostTerms terms_of(const HostCosts& costs, const Placement& placement) {
  CostTerms terms{};
  terms.n_ranks = placement.n_ranks;
  terms.on_host = placement.most_on_a_host;
  terms.n_hosts = placement.n_hosts;
  terms.n_sharing = placement.least_on_a_host > 0 ? placement.least_on_a_host : placement.most_on_a_host;
  terms.most_parts = placement.most_parts;
  terms.on_core = placement.most_on_a_core;
  const std::uint64_t waiting_ns = (terms.on_core - 1) * kSwitchNs;
  terms.call_ns = costs.call_ns + waiting_ns;
  terms.message_ns = costs.message_ns;
  terms.shared_ns = costs.shared_round_ns + waiting_ns;
  terms.channel_ns = costs.channel_round_ns + waiting_ns;
  terms.link_ns = costs.link_round_ns + waiting_ns;
  terms.copy_fs = terms.on_core * costs.copy_fs;
  terms.reduce_fs = terms.on_core * costs.reduce_fs;
  terms.channel_fs = kCopiesByChannel * terms.copy_fs;
  terms.link_fs = costs.link_fs;
  return terms;
}

// The time that does not depend on the number of bytes, only on the number of segments.
std::uint64_t nanoseconds(const Cost& cost, std::size_t segment_bytes, std::size_t n_bytes) {
  if (segment_bytes == 0 || n_bytes <= segment_bytes) return cost.fixed_ns;
  const std::uint64_t n_further = std::min((n_bytes - 1) / segment_bytes, kMostSegments);
  return cost.fixed_ns + n_further * cost.segment_ns;
}

std::size_t first_bytes(std::size_t segment_bytes, std::size_t n_bytes) {
  return segment_bytes == 0 ? n_bytes : std::min(segment_bytes, n_bytes);
}

double microseconds(const Cost& cost, std::size_t segment_bytes, std::size_t n_bytes) {
  const auto time_of = [](std::uint64_t fs_per_byte, std::size_t n) {
    return static_cast<double>(fs_per_byte) * static_cast<double>(n) * 1e-9;
  };
  return static_cast<double>(nanoseconds(cost, segment_bytes, n_bytes)) * 1e-3 + time_of(cost.fs_per_byte, n_bytes) +
         time_of(cost.fs_to_fill, first_bytes(segment_bytes, n_bytes));
}

}  // namespace

Placement placement_of(const Mesh& mesh) {
  struct Host {
    std::uint64_t n_ranks = 0;
    std::uint64_t n_cores = 0;
  };
  std::map<std::string, Host> hosts;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const PeerInfo& peer = mesh.peer(rank);
    Host& host = hosts[peer.host];
    ++host.n_ranks;
    host.n_cores = std::max(host.n_cores, static_cast<std::uint64_t>(std::max(peer.n_cores, 0)));
  }
  Placement placement;
  placement.n_ranks = static_cast<std::uint64_t>(mesh.size());
  placement.n_hosts = hosts.size();
  for (const auto& [label, host] : hosts) {
    placement.most_on_a_host = std::max(placement.most_on_a_host, host.n_ranks);
    if (host.n_cores == 0) continue;
    placement.most_on_a_core = std::max(placement.most_on_a_core, divide_up(host.n_ranks, host.n_cores));
  }
  const HostParts parts(runs_of(host_numbers(mesh)));
  placement.least_on_a_host = static_cast<std::uint64_t>(parts.fewest_ranks);
  placement.most_parts = parts.most_parts;
  return placement;
}

HostCosts costs_of(const Mesh& mesh) {
  std::optional<HostCosts> slowest;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const auto& costs = mesh.peer(rank).costs;
    if (costs) slowest = slowest ? slower_of(*slowest, *costs) : *costs;
  }
  return slowest.value_or(HostCosts{});
}

CostModel::CostModel(const HostCosts& costs, const Placement& placement)
    : terms_(terms_of(costs, placement)),
      bytes_under_way_(placement.n_hosts > 1 ? ciranda::bytes_under_way(costs) : 0) {
  for (const AlgorithmRow& row : algorithms()) costs_.push_back(row.cost != nullptr ? row.cost(terms_) : Cost{});
}

double CostModel::microseconds(const Pick& pick, std::size_t n_bytes) const {
  return ciranda::microseconds(cost(*pick.row), pick.segment_bytes, n_bytes);
}

double CostModel::microseconds_in_place(const AlgorithmRow& row, std::size_t n_bytes) const {
  return ciranda::microseconds(row.cost_in_place(terms_), 0, n_bytes);
}

bool CostModel::is_no_slower(const Pick& one, const Pick& other, std::size_t n_bytes, std::uint64_t percent) const {
  const auto time_of = [&](const Pick& pick) {
    const Cost& found = cost(*pick.row);
    return Femtoseconds{nanoseconds(found, pick.segment_bytes, n_bytes)} * kFsPerNs +
           Femtoseconds{found.fs_per_byte} * n_bytes +
           Femtoseconds{found.fs_to_fill} * first_bytes(pick.segment_bytes, n_bytes);
  };
  return time_of(one) * 100 <= time_of(other) * percent;
}

}  // namespace ciranda
