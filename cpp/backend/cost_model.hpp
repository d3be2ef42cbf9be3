// CostModel: how long each algorithm of an allreduce takes, by size: a fixed part (rounds of waiting, messages) and one
// for each byte (copied, combined, sent over a host's link).
//
// Made of HostCosts that all ranks know, and of how they lie on hosts. Computed in whole numbers, so that all come to
// the same choice. Pure; a plain value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/host_costs.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

enum class Algorithm : std::uint8_t {
  kSharedOneShot,
  kSharedTwoShot,
  kDirectOneShot,
  kDirectTwoShot,
  kDirectByHosts,
};
inline constexpr std::size_t kNumAlgorithms = 5;

// How the ranks of a mesh lie.
struct Placement {
  std::uint64_t n_ranks = 1;
  std::uint64_t n_hosts = 1;
  std::uint64_t most_on_a_host = 1;
  std::uint64_t most_on_a_core = 1;
};
Placement placement_of(const Mesh& mesh);

// Of the mesh's ranks, what the slowest has measured; the defaults if none has.
HostCosts costs_of(const Mesh& mesh);

class CostModel {
 public:
  CostModel(const HostCosts& costs, const Placement& placement);

  double microseconds(Algorithm algorithm, std::size_t n_bytes) const;

  // Whether `one` takes no longer than `other`; the same on all ranks.
  bool is_no_slower(Algorithm one, Algorithm other, std::size_t n_bytes) const;

 private:
  struct Line {
    std::uint64_t fixed_ns;
    std::uint64_t fs_per_byte;
  };
  const Line& line(Algorithm algorithm) const { return lines_[static_cast<std::size_t>(algorithm)]; }

  std::array<Line, kNumAlgorithms> lines_;
};

}  // namespace ciranda
