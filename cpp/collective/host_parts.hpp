// HostParts: the partial results ("parts") that each host combines by itself, and the steps that combine the parts to
// the final result. Each host has any number of consecutive ranks. A host has one part for each of the largest subtrees
// of the tree over all ranks (kernels.hpp) that lie within it: one part if it has an aligned power of two of ranks,
// else a few. Called by CostModel, NativeBackend and direct_allreduce_by_hosts.cc; types used by launch.hpp; pure.
#pragma once

#include <cstddef>
#include <vector>

namespace ciranda {

// From begin to end - 1.
struct RankRun {
  int begin;
  int end;

  int size() const { return end - begin; }
  friend bool operator==(const RankRun&, const RankRun&) = default;
};

// Turns the host numbers by rank into the runs of consecutive ranks on one host.
std::vector<RankRun> runs_of(const std::vector<int>& host_of);

struct HostParts {
  explicit HostParts(std::vector<RankRun> runs);

  // Combines values, in the order of the kernels. An input is an index into the list of the parts of all hosts, in rank
  // order, followed by the results of earlier steps.
  struct Step {
    std::vector<std::size_t> inputs;
  };

  // True if some host has fewer parts than ranks.
  bool are_fewer() const { return n_parts < static_cast<std::size_t>(n_ranks); }

  std::vector<RankRun> hosts;
  std::vector<std::vector<RankRun>> parts;  // by host
  std::vector<Step> steps;                  // the last gives the final result
  std::size_t n_parts = 0;
  std::size_t most_parts = 0;  // of a host
  int n_ranks;
  int fewest_ranks;  // of a host

 private:
  std::size_t add_steps(const RankRun& range, const std::vector<RankRun>& all);
};

}  // namespace ciranda
