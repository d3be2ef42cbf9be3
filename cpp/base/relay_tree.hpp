// RelayTree: which relay forwards whose reports: a host's ranks report to the host's first rank, hosts to hosts, up to
// the host of rank 0. The number of hosts below a host is such that two hops lead from any of about a thousand hosts to
// the first. Called by LaneLog, Relay and SpanningTree; plain, immutable, equal on every rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ciranda {

class RelayTree {
 public:
  // `hosts`: label by rank. `fan_out`: hosts below a host; 0: derived from the number of hosts.
  explicit RelayTree(const std::vector<std::string>& hosts, int fan_out = 0);

  int n_hosts() const { return static_cast<int>(hosts_.size()); }
  int fan_out() const { return fan_out_; }
  // The rank that forwards the reports of this rank; a relay's rank reports to itself.
  int relay_of(int rank) const { return hosts_[host_of(rank)].ranks.front(); }
  bool is_relay(int rank) const { return relay_of(rank) == rank; }
  // REQUIRES, here and below: `relay` is a relay. Returns the relay above it; -1 for the first relay.
  int parent(int relay) const;
  // The ranks of the relay's host, itself included, and the relays of the hosts below.
  const std::vector<std::int32_t>& ranks(int relay) const { return hosts_[host_of(relay)].ranks; }
  std::vector<int> relays_below(int relay) const;
  // All ranks whose reports pass through the relay, ascending.
  std::vector<std::int32_t> subtree(int relay) const;

 private:
  struct Host {
    std::vector<std::int32_t> ranks;
  };
  std::size_t host_of(int rank) const { return host_of_rank_[static_cast<std::size_t>(rank)]; }

  std::vector<Host> hosts_;  // ordered by lowest rank
  std::vector<std::size_t> host_of_rank_;
  int fan_out_;
};

// Of ranks on these hosts; none if they do without relays. Where some host has several, relays pay from more ranks on
// than `most_on_few_hosts`.
std::optional<RelayTree> relays_between(const std::vector<std::string>& hosts, int most_on_few_hosts);

}  // namespace ciranda
