// Policy: the table of all algorithms, and which of them the settings or the cost model choose for a call.
//
// Pure: made for one choice, of what there is to work with. Everything it refers to outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/cost_model.hpp"
#include "backend/native_options.hpp"
#include "collective/arena_session.hpp"
#include "collective/host_parts.hpp"
#include "collective/rounding.hpp"
#include "collective/running_collective.hpp"
#include "collective/scratch.hpp"
#include "fuse/plan.hpp"
#include "kernels/kernels.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// What there is to work with; each includes those before it.
enum class Memory : std::uint8_t {
  kChannels,     // pairs of ranks
  kArena,        // memory that all ranks share
  kSharedSlots,  // ... whose slots are large enough to be shared out among the ranks
};

// All that an algorithm may need to begin.
struct Launch {
  Mesh& mesh;
  ArenaSession* session;
  const NativeOptions& options;
  const Plan& plan;
  kernels::Reduction reduction;
  const HostParts& host_parts;
  const std::vector<int>& hosts;  // by rank, a number of its own
  std::size_t segment_bytes;
  Scratch& scratch;
  Rounding rounding;
};

struct PolicyRow {
  Collective collective;
  Memory needs;
  std::string_view name;
  std::unique_ptr<RunningCollective> (*start)(const Launch&);
  // Where there are several for a collective and a kind of memory, the cost model knows them by this.
  std::optional<Algorithm> algorithm = std::nullopt;
};

// A row of the table, and what it moves at a time.
struct Pick {
  const PolicyRow* row;
  std::size_t segment_bytes = 0;

  // REQUIRES: the cost model knows the row.
  Way way() const { return {*row->algorithm, segment_bytes}; }
  friend bool operator==(const Pick&, const Pick&) = default;
};

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

  // One there is at least: each collective has a row that needs only channels, and is always possible.
  Pick best(Collective collective, std::size_t n_bytes) const;
  // All that are possible: each algorithm with all lengths of segments that differ for calls of this class.
  std::vector<Pick> all(Collective collective, std::size_t n_bytes) const;

 private:
  Memory needed(Collective collective) const;
  bool is_possible(const PolicyRow& row, Collective collective, Memory needs, std::size_t n_bytes) const;
  bool is_better(const PolicyRow& later, const PolicyRow& earlier, std::size_t n_bytes) const;
  std::size_t usual_segment(const PolicyRow& row) const;
  Pick usual(const PolicyRow& row) const { return {&row, usual_segment(row)}; }
};

}  // namespace ciranda
