// Policy: chooses an algorithm of the table for a call, by the settings or the cost model.
//
// Called by NativeBackend; pure: created for one choice. Everything it refers to outlives it.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/algorithms.hpp"
#include "backend/cost_model.hpp"

namespace ciranda {

// The middle of a class: sizes above a power of two, up to the next, are one class.
std::size_t middle_of_class(std::size_t n_bytes);

struct Policy : Conditions {
  const CostModel& costs;
  Memory available;

  // Never fails: each collective has an algorithm that needs only channels and is always possible.
  Pick best(Collective collective, std::size_t n_bytes) const;
  // All possible picks: each algorithm with all segment sizes that differ for calls of this class.
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
