#include "backend/cost_model.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace ciranda {
namespace {

constexpr std::uint64_t kFsPerNs = 1'000'000;
// Where ranks share a core, each has to be given it before a round is over.
constexpr std::uint64_t kSwitchNs = 5'000;
// A byte from one rank to another of its host, over a channel: into it and out of it, by way of the system.
constexpr std::uint64_t kCopiesByChannel = 4;

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
  const std::uint64_t n = placement.n_ranks;
  const std::uint64_t on_host = placement.most_on_a_host;
  const std::uint64_t others = n - 1;
  const std::uint64_t neighbours = on_host - 1;
  const std::uint64_t elsewhere = n - on_host;
  const std::uint64_t crowd = placement.most_on_a_core;
  const std::uint64_t waiting_ns = (crowd - 1) * kSwitchNs;
  const std::uint64_t copy = crowd * costs.copy_fs;
  const std::uint64_t reduce = crowd * costs.reduce_fs;
  const std::uint64_t channel = kCopiesByChannel * copy;

  // Everything into a slot, and all inputs combined; or the others' slices in, the own combined, all slices out.
  const std::uint64_t shared_ns = costs.shared_round_ns + waiting_ns;
  lines_[static_cast<std::size_t>(Algorithm::kSharedOneShot)] = {costs.call_ns + shared_ns, copy + n * reduce};
  lines_[static_cast<std::size_t>(Algorithm::kSharedTwoShot)] = {costs.call_ns + 2 * shared_ns,
                                                                 copy * (2 * n - 1) / n + reduce};

  // A host's ranks share its link: what one of them sends, all of them do. What comes in one shot is kept until all has
  // come, in memory that is asked for anew.
  const std::uint64_t channel_ns = costs.channel_round_ns + waiting_ns;
  const std::uint64_t link_ns = costs.link_round_ns + waiting_ns;
  const std::uint64_t round_ns = elsewhere > 0 ? link_ns : channel_ns;
  const std::uint64_t to_all = on_host * elsewhere * costs.link_fs + neighbours * channel;
  lines_[static_cast<std::size_t>(Algorithm::kDirectOneShot)] = {costs.call_ns + round_ns + others * costs.message_ns,
                                                                 to_all + n * (reduce + copy)};
  lines_[static_cast<std::size_t>(Algorithm::kDirectTwoShot)] = {
      costs.call_ns + 2 * (round_ns + others * costs.message_ns), 2 * to_all / n + reduce};

  const std::uint64_t hosts = placement.n_hosts;
  const std::uint64_t n_messages = 2 * (neighbours + hosts - 1);
  lines_[static_cast<std::size_t>(Algorithm::kDirectByHosts)] = {
      costs.call_ns + 2 * (channel_ns + link_ns) + n_messages * costs.message_ns,
      2 * (hosts - 1) * costs.link_fs / hosts + 2 * neighbours * channel / on_host + reduce + reduce / on_host};
}

double CostModel::microseconds(Algorithm algorithm, std::size_t n_bytes) const {
  const Line& found = line(algorithm);
  return static_cast<double>(found.fixed_ns) * 1e-3 +
         static_cast<double>(found.fs_per_byte) * static_cast<double>(n_bytes) * 1e-9;
}

// a + bx <= c + dx without a product that could be too large.
bool CostModel::is_no_slower(Algorithm one, Algorithm other, std::size_t n_bytes) const {
  const Line& a = line(one);
  const Line& b = line(other);
  if (a.fs_per_byte == b.fs_per_byte) return a.fixed_ns <= b.fixed_ns;
  const bool is_steeper = a.fs_per_byte > b.fs_per_byte;
  const Line& steep = is_steeper ? a : b;
  const Line& flat = is_steeper ? b : a;
  if (steep.fixed_ns > flat.fixed_ns) return !is_steeper;
  const std::uint64_t crossing = (flat.fixed_ns - steep.fixed_ns) * kFsPerNs / (steep.fs_per_byte - flat.fs_per_byte);
  return (n_bytes <= crossing) == is_steeper;
}

}  // namespace ciranda
