#include "base/spanning_tree.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/agreement_limits.hpp"

namespace ciranda {
namespace {

std::optional<RelayTree> relays_of_world(const std::vector<std::string>& hosts, bool uses_relays) {
  return uses_relays ? relays_between(hosts, 0) : std::nullopt;
}

}  // namespace

SpanningTree::SpanningTree(const std::vector<std::string>& hosts, bool uses_relays)
    : are_all_linked_(!relays_of_world(hosts, uses_relays) &&
                      static_cast<int>(hosts.size()) <= AgreementLimits{}.message_ranks),
      tree_(relays_of_world(hosts, uses_relays).value_or(RelayTree(std::vector<std::string>(hosts.size())))),
      has_left_(hosts.size()),
      n_gone_(hosts.size()) {}

void SpanningTree::note_left(int rank) {
  has_left_[static_cast<std::size_t>(rank)] = true;
  const int first = tree_.relay_of(rank);
  const std::vector<std::int32_t>& ranks = tree_.ranks(first);
  std::size_t& n_gone = n_gone_[static_cast<std::size_t>(first)];
  while (n_gone < ranks.size() && has_left(ranks[n_gone])) ++n_gone;
  while (lowest_ < static_cast<int>(has_left_.size()) && has_left(lowest_)) ++lowest_;
}

// The lowest rank of its own host, then of the hosts above it, then of all, if it is lower.
int SpanningTree::parent(int rank) const {
  for (int relay = tree_.relay_of(rank); relay >= 0; relay = tree_.parent(relay)) {
    const std::vector<std::int32_t>& ranks = tree_.ranks(relay);
    const std::size_t n_gone = n_gone_[static_cast<std::size_t>(relay)];
    if (n_gone < ranks.size() && ranks[n_gone] < rank) return ranks[n_gone];
  }
  return lowest_ < rank ? lowest_ : -1;
}

bool SpanningTree::are_linked(int rank, int other) const {
  if (rank == other) return false;
  return are_all_linked_ || parent(std::max(rank, other)) == std::min(rank, other);
}

}  // namespace ciranda
