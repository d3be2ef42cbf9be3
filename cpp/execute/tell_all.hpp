// tell_all: each rank of a lane sends some numbers to all others, before the ranks continue with an entry of the log.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "execute/work.hpp"

namespace ciranda {

// Sends `told` to all ranks; every rank sends the same count of numbers. `heard` gets the numbers of all ranks, as
// [rank][number]. Then then() returns the next work. `told` and `heard` outlive the work and are not moved.
template <typename Number>
Work tell_all(const std::vector<Number>& told, int n_ranks, std::vector<Number>& heard,
              std::function<Result<Work>()> then) {
  heard.assign(told.size() * static_cast<std::size_t>(n_ranks), Number{});
  Work work{.plans = {}, .continue_with = std::move(then)};
  Plan& plan = work.plans.emplace_back();
  plan.collective = Collective::kAllgather;
  plan.n_bytes = told.size() * sizeof(Number);
  plan.input.add(std::as_bytes(std::span(told)).data(), plan.n_bytes);
  const auto all = std::as_writable_bytes(std::span(heard));
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(n_ranks); ++rank) {
    plan.output_by_rank.emplace_back(all.data() + rank * plan.n_bytes, plan.n_bytes);
  }
  return work;
}

}  // namespace ciranda
