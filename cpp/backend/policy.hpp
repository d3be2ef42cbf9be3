// Policy: which algorithm of the table the settings or the cost model choose for a call.
//
// Pure: made for one choice, of what there is to work with. Everything it refers to outlives it.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/algorithms.hpp"
#include "backend/cost_model.hpp"
#include "backend/native_options.hpp"
#include "collective/rounding.hpp"

namespace ciranda {

// Sizes above a power of two, up to the next, are of one class, and this is one in the middle.
std::size_t middle_of_class(std::size_t n_bytes);

struct Policy {
  const CostModel& costs;
  const NativeOptions& options;
  int n_ranks;
  Memory available;
  std::size_t slot_bytes;
  bool combines_in_parts;  // the plan
  bool hosts_combine;      // some can combine inputs of their own (host_parts.hpp)
  Rounding rounding;

  // One there is at least: each collective has one that needs only channels, and is always possible.
  Pick best(Collective collective, std::size_t n_bytes) const;
  // All that are possible: each algorithm with all lengths of segments that differ for calls of this class.
  std::vector<Pick> all(Collective collective, std::size_t n_bytes) const;

 private:
  Memory needed(Collective collective) const;
  bool is_possible(const AlgorithmRow& row, Collective collective, Memory needs, std::size_t n_bytes) const;
  bool is_better(const AlgorithmRow& later, const AlgorithmRow& earlier, std::size_t n_bytes) const;
  std::size_t usual_segment(const AlgorithmRow& row) const;
  std::size_t segment_of_long_links() const;
  Pick usual(const AlgorithmRow& row) const { return {&row, usual_segment(row)}; }
};

}  // namespace ciranda
