// RelayTree: who passes on whose reports: the ranks of a host to the host's first rank, hosts to hosts, up to the
// host of rank 0. A host has so many hosts below it that two hops lead from any of about a thousand to the first.
// Plain and immutable; every rank makes the same one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ciranda {

class RelayTree {
 public:
  // `hosts`: label by rank. `fan_out`: hosts below a host; 0: chosen by their number.
  explicit RelayTree(const std::vector<std::string>& hosts, int fan_out = 0);

  int n_hosts() const { return static_cast<int>(hosts_.size()); }
  int fan_out() const { return fan_out_; }
  // The rank that passes on what this one reports; a relay's own rank reports to itself.
  int relay_of(int rank) const { return hosts_[host_of(rank)].ranks.front(); }
  bool is_relay(int rank) const { return relay_of(rank) == rank; }
  // REQUIRES, here and below: it is a relay. The relay that it passes to; -1: none, it is the first.
  int parent(int relay) const;
  // Its host's ranks, itself among them, and the relays of the hosts below.
  const std::vector<std::int32_t>& ranks(int relay) const { return hosts_[host_of(relay)].ranks; }
  std::vector<int> relays_below(int relay) const;
  // All ranks whose reports come through it, ascending.
  std::vector<std::int32_t> subtree(int relay) const;

 private:
  struct Host {
    std::vector<std::int32_t> ranks;
  };
  std::size_t host_of(int rank) const { return host_of_rank_[static_cast<std::size_t>(rank)]; }

  std::vector<Host> hosts_;  // by their lowest rank
  std::vector<std::size_t> host_of_rank_;
  int fan_out_;
};

}  // namespace ciranda
