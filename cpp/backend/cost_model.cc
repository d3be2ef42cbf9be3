#include "backend/cost_model.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "collective/aligned_blocks.hpp"
#include "collective/host_parts.hpp"
#include "collective/hosts.hpp"

namespace ciranda {
namespace {

constexpr std::uint64_t kFsPerNs = 1'000'000;
// More than any that matter: keeps products within 64 bits.
constexpr std::uint64_t kMostSegments = 1'000'000;
// Sums of what 64 bits hold.
__extension__ using Femtoseconds = unsigned __int128;
// Where ranks share a core, each has to be given it before a round is over.
constexpr std::uint64_t kSwitchNs = 12'000;
// A byte from one rank to another of its host, over a channel: into it and out of it, by way of the system.
constexpr std::uint64_t kCopiesByChannel = 4;

std::uint64_t filled(const Way& way, std::size_t n_bytes) {
  return way.segment_bytes == 0 ? n_bytes : std::min(way.segment_bytes, n_bytes);
}

std::uint64_t levels_of(std::uint64_t n) { return static_cast<std::uint64_t>(std::bit_width(n - 1)); }

std::uint64_t ceiling(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

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
    placement.most_on_a_core = std::max(placement.most_on_a_core, ceiling(host.n_ranks, host.n_cores));
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

CostModel::CostModel(const HostCosts& costs, const Placement& placement) : lines_{} {
  add_reductions(costs, placement);
  add_broadcasts(costs, placement);
}

void CostModel::add_reductions(const HostCosts& costs, const Placement& placement) {
  const std::uint64_t n = placement.n_ranks;
  const std::uint64_t on_host = placement.most_on_a_host;
  const std::uint64_t others = n - 1;
  const std::uint64_t neighbours = on_host - 1;
  const std::uint64_t elsewhere = n - on_host;
  const std::uint64_t crowd = placement.most_on_a_core;
  const std::uint64_t waiting_ns = (crowd - 1) * kSwitchNs;
  const std::uint64_t call_ns = costs.call_ns + waiting_ns;
  const std::uint64_t copy = crowd * costs.copy_fs;
  const std::uint64_t reduce = crowd * costs.reduce_fs;
  const std::uint64_t channel = kCopiesByChannel * copy;

  // Everything into a slot, and all inputs combined; or the others' slices in, the own combined, all slices out.
  const std::uint64_t shared_ns = costs.shared_round_ns + waiting_ns;
  line(Algorithm::kSharedOneShot) = {call_ns + shared_ns, copy + n * reduce};
  line(Algorithm::kSharedTwoShot) = {call_ns + 2 * shared_ns, copy * (2 * n - 1) / n + reduce, shared_ns};

  // The own slice is combined where it lies, and the result copied to all others.
  line(Algorithm::kSharedInPlace) = {call_ns + 2 * shared_ns, reduce + others * copy / n};

  // A host's ranks share its link: what one of them sends, all of them do. What comes in one shot is kept aside until
  // all has come.
  const std::uint64_t channel_ns = costs.channel_round_ns + waiting_ns;
  const std::uint64_t link_ns = costs.link_round_ns + waiting_ns;
  const std::uint64_t round_ns = elsewhere > 0 ? link_ns : channel_ns;
  const std::uint64_t to_all = on_host * elsewhere * costs.link_fs + neighbours * channel;
  const std::uint64_t messages_ns = others * costs.message_ns;
  line(Algorithm::kDirectOneShot) = {call_ns + round_ns + messages_ns, to_all + n * reduce + others * copy};
  line(Algorithm::kDirectTwoShot) = {call_ns + 2 * (round_ns + messages_ns), 2 * to_all / n + reduce, 2 * messages_ns};

  // As many ranks of each host as the smallest has share the work out. A host sends a share of each of its parts to
  // each other host, and of the result.
  const std::uint64_t hosts = placement.n_hosts;
  const std::uint64_t n_sharing = placement.least_on_a_host > 0 ? placement.least_on_a_host : on_host;
  const std::uint64_t n_messages = 2 * (neighbours + hosts - 1);
  line(Algorithm::kDirectByHosts) = {call_ns + 2 * (channel_ns + link_ns) + n_messages * costs.message_ns,
                                     (placement.most_parts + 1) * (hosts - 1) * costs.link_fs / hosts +
                                         2 * neighbours * channel / n_sharing +
                                         (on_host + placement.most_parts) * reduce / n_sharing,
                                     n_messages * costs.message_ns};

  // At each level everything goes to another rank and comes from one; within the host first, while blocks are smaller.
  const AlignedBlocks blocks{static_cast<int>(n)};
  std::uint64_t rounds_ns = 0;
  std::uint64_t fs_per_byte = 0;
  for (int level = 0; level < blocks.n_levels(); ++level) {
    const bool is_within = std::uint64_t{1} << level < on_host;
    const auto n_targets = static_cast<std::uint64_t>(blocks.most_targets(level));
    rounds_ns += (is_within ? channel_ns : link_ns) + n_targets * costs.message_ns;
    fs_per_byte += n_targets * (is_within ? channel : on_host * costs.link_fs) + 2 * reduce;
  }
  line(Algorithm::kDirectDoubling) = {call_ns + rounds_ns, copy + fs_per_byte, rounds_ns, 0, rounds_ns};
}

// Over hosts, and then within one. Who passes on what it gets does both at the same time.
void CostModel::add_broadcasts(const HostCosts& costs, const Placement& placement) {
  const std::uint64_t on_host = placement.most_on_a_host;
  const std::uint64_t neighbours = on_host - 1;
  const std::uint64_t elsewhere = placement.n_ranks - on_host;
  const std::uint64_t crowd = placement.most_on_a_core;
  const std::uint64_t waiting_ns = (crowd - 1) * kSwitchNs;
  const std::uint64_t call_ns = costs.call_ns + waiting_ns;
  const std::uint64_t channel_ns = costs.channel_round_ns + costs.message_ns + waiting_ns;
  const std::uint64_t link_ns = costs.link_round_ns + costs.message_ns + waiting_ns;
  const std::uint64_t channel = kCopiesByChannel * costs.copy_fs;
  const std::uint64_t n_messages = neighbours + elsewhere;

  // The root does all, so it is not kept from its core by what others do at the time.
  line(Algorithm::kBroadcastDirect) = {
      call_ns + (elsewhere > 0 ? link_ns : channel_ns) + (n_messages - 1) * costs.message_ns,
      elsewhere * costs.link_fs + (neighbours > 0 ? std::max(neighbours, crowd) * channel : 0)};

  const std::uint64_t host_rounds = levels_of(placement.n_hosts);
  const std::uint64_t local_rounds = levels_of(on_host);
  line(Algorithm::kBroadcastTree) = {call_ns + host_rounds * link_ns + local_rounds * channel_ns,
                                     host_rounds * costs.link_fs + local_rounds * crowd * channel, costs.message_ns};

  const std::uint64_t host_hops = placement.n_hosts - 1;
  const std::uint64_t to_link = host_hops > 0 ? costs.link_fs : 0;
  const std::uint64_t to_neighbour = neighbours > 0 ? crowd * channel : 0;
  line(Algorithm::kBroadcastChain) = {
      call_ns + host_hops * link_ns + neighbours * channel_ns, to_link + to_neighbour, costs.message_ns,
      (host_hops > 0 ? host_hops - 1 : 0) * to_link + (neighbours > 0 ? neighbours - 1 : 0) * to_neighbour};
}

std::uint64_t CostModel::nanoseconds(const Way& way, std::size_t n_bytes) const {
  const Line& found = line(way.algorithm);
  if (way.segment_bytes == 0 || n_bytes <= way.segment_bytes) return found.fixed_ns;
  const std::uint64_t n_further = std::min((n_bytes - 1) / way.segment_bytes, kMostSegments);
  return found.fixed_ns + n_further * found.segment_ns;
}

double CostModel::microseconds(const Way& way, std::size_t n_bytes) const {
  const Line& found = line(way.algorithm);
  const auto time_of = [](std::uint64_t fs_per_byte, std::size_t n) {
    return static_cast<double>(fs_per_byte) * static_cast<double>(n) * 1e-9;
  };
  return static_cast<double>(nanoseconds(way, n_bytes)) * 1e-3 + time_of(found.fs_per_byte, n_bytes) +
         time_of(found.fs_to_fill, filled(way, n_bytes));
}

bool CostModel::is_no_slower(const Way& one, const Way& other, std::size_t n_bytes, std::uint64_t percent) const {
  const auto time_of = [&](const Way& way) {
    const Line& found = line(way.algorithm);
    return Femtoseconds{nanoseconds(way, n_bytes)} * kFsPerNs + Femtoseconds{found.fs_per_byte} * n_bytes +
           Femtoseconds{found.fs_to_fill} * filled(way, n_bytes);
  };
  return time_of(one) * 100 <= time_of(other) * percent;
}

}  // namespace ciranda
