// HostParts: what hosts combine by themselves, and how that is combined to the result of all, where each host has any
// number of ranks that follow each other. A host gives a part for each of the largest subtrees of the tree over all
// ranks (kernels.hpp) that it has all of: one if it has an aligned power of two of ranks, else a few. Pure.
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

// By rank, the number of a host -> the ranks that follow each other on one.
std::vector<RankRun> runs_of(const std::vector<int>& host_of);

struct HostParts {
  explicit HostParts(std::vector<RankRun> runs);

  // Combines, in the order of the kernels, what these are the places of: parts of all hosts, counted in rank order, and
  // behind them what steps before have given.
  struct Step {
    std::vector<std::size_t> inputs;
  };

  // Whether some host has less to give than its ranks have.
  bool are_fewer() const { return n_parts < static_cast<std::size_t>(n_ranks); }

  std::vector<RankRun> hosts;
  std::vector<std::vector<RankRun>> parts;  // by host
  std::vector<Step> steps;                  // the last gives the result of all
  std::size_t n_parts = 0;
  std::size_t most_parts = 0;  // of a host
  int n_ranks;
  int fewest_ranks;  // of a host

 private:
  std::size_t add_steps(const RankRun& range, const std::vector<RankRun>& all);
};

}  // namespace ciranda
