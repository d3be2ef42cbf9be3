// CostModel: the expected time of each algorithm, by size: a fixed part (rounds of waiting, messages), a part for each
// segment after the first, and a part for each byte (copied, combined, sent over a host's link). Each algorithm's cost
// function (algorithms.hpp) computes these parts.
//
// Inputs are HostCosts that all ranks know, and the placement of ranks on hosts. All is computed in whole numbers, so
// that all ranks make the same choice. The model ignores, for example, how caches treat segments of different sizes;
// OnlineAutotuner corrects it by measurements.
// Called by NativeBackend, which makes the Placement, and Policy; pure, a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/algorithms.hpp"
#include "base/host_costs.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// How the ranks of a mesh are placed on hosts and cores.
struct Placement {
  std::uint64_t n_ranks = 1;
  std::uint64_t n_hosts = 1;
  std::uint64_t most_on_a_host = 1;
  std::uint64_t most_on_a_core = 1;
  std::uint64_t least_on_a_host = 0;  // 0: the same number on each
  std::uint64_t most_parts = 1;       // partial results to which a host combines its inputs (collective/host_parts.hpp)
};
Placement placement_of(const Mesh& mesh);

// The measured costs of the slowest host of the mesh; the defaults if no rank has any.
HostCosts costs_of(const Mesh& mesh);

class CostModel {
 public:
  CostModel(const HostCosts& costs, const Placement& placement);

  double microseconds(const Pick& pick, std::size_t n_bytes) const;
  // As microseconds(), if all ranks' tensors lie in memory that all have mapped. REQUIRES: row.cost_in_place.
  double microseconds_in_place(const AlgorithmRow& row, std::size_t n_bytes) const;
  // See Cost::unseen_ns.
  std::uint64_t unseen_ns(const AlgorithmRow& row) const { return cost(row).unseen_ns; }

  // The least number of bytes to keep in flight if ranks of several hosts wait for each other's answers; on one host 0.
  std::uint64_t bytes_under_way() const { return bytes_under_way_; }

  // True if `one` takes at most `percent` of the time of `other`; the same on all ranks.
  bool is_no_slower(const Pick& one, const Pick& other, std::size_t n_bytes, std::uint64_t percent = 100) const;

 private:
  // REQUIRES: the row has a cost function.
  const Cost& cost(const AlgorithmRow& row) const {
    return costs_[static_cast<std::size_t>(&row - algorithms().data())];
  }

  CostTerms terms_;
  std::uint64_t bytes_under_way_;
  std::vector<Cost> costs_;  // by row
};

}  // namespace ciranda
