// tell_all: each rank of a lane tells all others some numbers, before the ranks can go on with an entry of the log.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fuse/plan.hpp"

namespace ciranda {

// All tell equally many. `heard` becomes [rank][number] when the plan is done. Both outlive the plan, unmoved.
template <typename Number>
Plan plan_tell_all(const std::vector<Number>& told, int n_ranks, std::vector<Number>& heard) {
  heard.assign(told.size() * static_cast<std::size_t>(n_ranks), Number{});
  Plan plan;
  plan.collective = Collective::kAllgather;
  plan.n_bytes = told.size() * sizeof(Number);
  plan.input.add(std::as_bytes(std::span(told)).data(), plan.n_bytes);
  const auto all = std::as_writable_bytes(std::span(heard));
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(n_ranks); ++rank) {
    plan.output_by_rank.emplace_back(all.data() + rank * plan.n_bytes, plan.n_bytes);
  }
  return plan;
}

}  // namespace ciranda
