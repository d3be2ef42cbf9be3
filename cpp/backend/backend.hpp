// Backend: carries plans out over the mesh of one rank. All folders above know this interface and the registry
// (backend/registry.hpp), never an implementation.
//
// One thread (the holder of the progress lock). Plans run one after the other, in the order of the response log.
// Nothing here waits: a running collective is a state machine. Plans name memory that the backend understands, which
// its row of the registry says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"
#include "transport/arena.hpp"

namespace ciranda {

// One way to carry a collective out.
struct Candidate {
  std::string_view name;              // "shm two-shot"
  std::size_t segment_bytes = 0;      // what is moved at a time; 0: all at once
  std::optional<double> expected_us;  // what the cost model says, where there is something to choose
  std::optional<double> taken_us;     // what calls of this job took that tried it
  bool is_chosen = false;
  bool is_in_place = false;  // what `name` becomes where all ranks' tensors lie in memory that all have mapped
};

class Backend {
 public:
  virtual ~Backend() = default;

  // From the next plan on, which is the next on all ranks of the mesh. The arena outlives the backend.
  virtual void use(SharedArena& arena) = 0;

  // The plan outlives the collective, which is gone before the next is started. Null when there is nothing to move
  // between ranks: the plan is then carried out.
  virtual std::unique_ptr<RunningCollective> start(const Plan& plan) = 0;

  // An allreduce whose inputs, of all ranks in their order, are at hand; any of them may lie where the result goes.
  // The pointers are moved on.
  virtual void combine(const Plan& plan, std::span<const std::byte*> inputs) const = 0;

  // What this rank has measured, if it is time to tell the others; else nothing. At the same place of the log on all
  // ranks, with what was started before done. Then all conclude() from what all have told, one rank after the other.
  virtual std::vector<std::uint64_t> news() const = 0;
  virtual void conclude(std::span<const std::uint64_t> news_of_all) = 0;

  // How a collective of so many bytes could be carried out (of float32, where that matters), and what is chosen.
  virtual std::vector<Candidate> candidates(Collective collective, std::size_t n_bytes) const = 0;
};

}  // namespace ciranda
