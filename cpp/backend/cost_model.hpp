// CostModel: how long each algorithm takes, by size: a fixed part (rounds of waiting, messages), one for each segment
// after the first, and one for each byte (copied, combined, sent over a host's link). The algorithms' own functions
// (algorithms.hpp) say how these come about.
//
// Made of HostCosts that all ranks know, and of how they lie on hosts. Computed in whole numbers, so that all come to
// the same choice. What it does not know, as what caches do to segments of different lengths, OnlineAutotuner finds.
// Pure; a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/algorithms.hpp"
#include "base/host_costs.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// How the ranks of a mesh lie.
struct Placement {
  std::uint64_t n_ranks = 1;
  std::uint64_t n_hosts = 1;
  std::uint64_t most_on_a_host = 1;
  std::uint64_t most_on_a_core = 1;
  std::uint64_t least_on_a_host = 0;  // 0: as many on each
  std::uint64_t most_parts = 1;       // that a host combines its inputs to (collective/host_parts.hpp)
};
Placement placement_of(const Mesh& mesh);

// Of the mesh's ranks, what the slowest has measured; the defaults if none has.
HostCosts costs_of(const Mesh& mesh);

class CostModel {
 public:
  CostModel(const HostCosts& costs, const Placement& placement);

  double microseconds(const Pick& pick, std::size_t n_bytes) const;
  // Where all ranks' tensors lie in memory that all have mapped. REQUIRES: this makes a difference to the algorithm.
  double microseconds_in_place(const AlgorithmRow& row, std::size_t n_bytes) const;
  // See Cost::unseen_ns.
  std::uint64_t unseen_ns(const AlgorithmRow& row) const { return cost(row).unseen_ns; }

  // What is to be under way at least where ranks of several hosts wait for each other's answers; else 0.
  std::uint64_t bytes_under_way() const { return bytes_under_way_; }

  // Whether `one` takes at most so many percent of what `other` takes; the same on all ranks.
  bool is_no_slower(const Pick& one, const Pick& other, std::size_t n_bytes, std::uint64_t percent = 100) const;

 private:
  // REQUIRES: the row says what it costs.
  const Cost& cost(const AlgorithmRow& row) const {
    return costs_[static_cast<std::size_t>(&row - algorithms().data())];
  }

  CostTerms terms_;
  std::uint64_t bytes_under_way_;
  std::vector<Cost> costs_;  // by row
};

}  // namespace ciranda
