// allgather_numbers: the phase of an entry of the log in which each rank of a lane sends some numbers to all others.
// Called by DataPlane, LaneArena, Consistency and weighted_average.cc; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "execute/work.hpp"

namespace ciranda {

// Sends `sent` to all ranks; every rank sends the same count of numbers. `received` gets the numbers of all ranks, as
// [rank][number]. Then then() returns the next work. `sent` and `received` outlive the work and are not moved.
template <typename Number>
Work allgather_numbers(const std::vector<Number>& sent, int n_ranks, std::vector<Number>& received,
                       std::function<Result<Work>()> then) {
  received.assign(sent.size() * static_cast<std::size_t>(n_ranks), Number{});
  Work work{.plans = {}, .continue_with = std::move(then)};
  Plan& plan = work.plans.emplace_back();
  plan.collective = Collective::kAllgather;
  plan.n_bytes = sent.size() * sizeof(Number);
  plan.input.add(std::as_bytes(std::span(sent)).data(), plan.n_bytes);
  const auto all = std::as_writable_bytes(std::span(received));
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(n_ranks); ++rank) {
    plan.output_by_rank.emplace_back(all.data() + rank * plan.n_bytes, plan.n_bytes);
  }
  return work;
}

}  // namespace ciranda
