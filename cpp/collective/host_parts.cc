#include "collective/host_parts.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace ciranda {
namespace {

int left_size(const RankRun& range) { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(range.size())) / 2); }

// The parts, given in rank order, that lie in a subtree.
std::pair<std::size_t, std::size_t> places_within(const RankRun& range, const std::vector<RankRun>& all) {
  const auto begins_before = [](const RankRun& part, int rank) { return part.begin < rank; };
  const auto first = std::lower_bound(all.begin(), all.end(), range.begin, begins_before);
  const auto last = std::lower_bound(first, all.end(), range.end, begins_before);
  return {static_cast<std::size_t>(first - all.begin()), static_cast<std::size_t>(last - all.begin())};
}

// The largest subtrees of a tree that lie in a range, in order.
void add_subtrees(const RankRun& tree, const RankRun& range, std::vector<RankRun>& found) {
  if (tree.end <= range.begin || range.end <= tree.begin) return;
  if (range.begin <= tree.begin && tree.end <= range.end) {
    found.push_back(tree);
    return;
  }
  const int middle = tree.begin + left_size(tree);
  add_subtrees({tree.begin, middle}, range, found);
  add_subtrees({middle, tree.end}, range, found);
}

}  // namespace

std::vector<RankRun> runs_of(const std::vector<int>& host_of) {
  std::vector<RankRun> runs;
  for (int rank = 0; rank < static_cast<int>(host_of.size()); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (rank == 0 || host_of[at] != host_of[at - 1]) runs.push_back({rank, rank});
    ++runs.back().end;
  }
  return runs;
}

HostParts::HostParts(std::vector<RankRun> runs) : hosts(std::move(runs)), n_ranks(hosts.back().end) {
  fewest_ranks = n_ranks;
  std::vector<RankRun> all;
  for (const RankRun& host : hosts) {
    add_subtrees({0, n_ranks}, host, parts.emplace_back());
    all.insert(all.end(), parts.back().begin(), parts.back().end());
    most_parts = std::max(most_parts, parts.back().size());
    fewest_ranks = std::min(fewest_ranks, host.size());
  }
  n_parts = all.size();
  add_steps({0, n_ranks}, all);
}

// Returns the index of the result of a subtree.
std::size_t HostParts::add_steps(const RankRun& range, const std::vector<RankRun>& all) {
  const auto [first, end] = places_within(range, all);
  if (end - first == 1) return first;
  Step step;
  // Parts of equal size, of which only the last may be smaller, are combined like the inputs of a kernel: in one step.
  const int size = all[first].size();
  const bool are_alike =
      std::all_of(all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(end) - 1,
                  [size](const RankRun& part) { return part.size() == size; }) &&
      all[end - 1].size() <= size;
  if (are_alike) {
    for (std::size_t place = first; place < end; ++place) step.inputs.push_back(place);
  } else {
    const int middle = range.begin + left_size(range);
    step.inputs.push_back(add_steps({range.begin, middle}, all));
    step.inputs.push_back(add_steps({middle, range.end}, all));
  }
  steps.push_back(std::move(step));
  return n_parts + steps.size() - 1;
}

}  // namespace ciranda
