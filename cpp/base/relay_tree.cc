#include "base/relay_tree.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace ciranda {
namespace {

constexpr int kLeastFanOut = 8;
constexpr int kMostFanOut = 32;
// Where every host has one rank, relays gather nothing on a host, and beyond nine hosts the way to the coordinator and
// back crosses the network four times instead of twice: 70 us more. Up to this number of ranks the coordinator sends
// the log to all others in less.
constexpr int kMostOnHostsOfOne = 33;

int fan_out_for(std::size_t n_hosts) {
  const int for_two_hops = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(n_hosts))));
  return std::clamp(for_two_hops, kLeastFanOut, kMostFanOut);
}

}  // namespace

RelayTree::RelayTree(const std::vector<std::string>& hosts, int fan_out) : fan_out_(fan_out) {
  std::unordered_map<std::string, std::size_t> known;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::size_t host = known.try_emplace(hosts[rank], hosts_.size()).first->second;
    if (host == hosts_.size()) hosts_.emplace_back();
    hosts_[host].ranks.push_back(static_cast<std::int32_t>(rank));
    host_of_rank_.push_back(host);
  }
  if (fan_out_ <= 0) fan_out_ = fan_out_for(hosts_.size());
}

int RelayTree::parent(int relay) const {
  const std::size_t host = host_of(relay);
  return host == 0 ? -1 : hosts_[(host - 1) / static_cast<std::size_t>(fan_out_)].ranks.front();
}

std::vector<int> RelayTree::relays_below(int relay) const {
  std::vector<int> below;
  const std::size_t first = host_of(relay) * static_cast<std::size_t>(fan_out_) + 1;
  const std::size_t end = std::min(hosts_.size(), first + static_cast<std::size_t>(fan_out_));
  for (std::size_t host = first; host < end; ++host) below.push_back(hosts_[host].ranks.front());
  return below;
}

std::vector<std::int32_t> RelayTree::subtree(int relay) const {
  std::vector<std::int32_t> all = ranks(relay);
  for (const int below : relays_below(relay)) {
    const std::vector<std::int32_t> more = subtree(below);
    all.insert(all.end(), more.begin(), more.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::optional<RelayTree> relays_between(const std::vector<std::string>& hosts, int most_on_few_hosts) {
  RelayTree tree(hosts);
  if (tree.n_hosts() < 2) return std::nullopt;
  const int n_ranks = static_cast<int>(hosts.size());
  if (n_ranks <= (tree.n_hosts() == n_ranks ? kMostOnHostsOfOne : most_on_few_hosts)) return std::nullopt;
  return tree;
}

}  // namespace ciranda
