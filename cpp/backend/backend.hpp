// Backend: executes plans over the mesh of one rank. All folders above know this interface and the registry
// (backend/registry.hpp), never an implementation.
//
// One thread (the holder of the progress lock). Plans run one after the other, in the order of the response log. No
// method blocks: a running collective is a state machine. A plan's memory is of the type in the backend's row of the
// registry.
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

// One way to execute a collective.
struct Candidate {
  std::string_view name;              // "shm two-shot"
  std::size_t segment_bytes = 0;      // 0: all at once
  std::optional<double> expected_us;  // by the cost model, if there are several candidates
  std::optional<double> taken_us;     // measured in calls of this job that tried it
  bool is_chosen = false;
  bool is_in_place = false;  // `name` when all ranks' tensors lie in memory that all have mapped
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Uses this arena from the next plan on. All ranks of the mesh call this before the same plan. The arena outlives the
  // backend.
  virtual void use(SharedArena& arena) = 0;

  // Starts a plan. The plan must outlive the collective, which must be destroyed before the next start(). Null: no
  // bytes have to move between ranks, and the plan is already done.
  virtual std::unique_ptr<RunningCollective> start(const Plan& plan) = 0;

  // Executes an allreduce of which this rank has all inputs, in rank order. An input may lie in the memory of the
  // result. Advances the pointers.
  virtual void combine(const Plan& plan, std::span<const std::byte*> inputs) const = 0;

  // This rank's measurements, if a trial has ended; else empty. All ranks call news() at the same position in the log,
  // when all earlier plans are done. Then all call conclude() with the news of all ranks, concatenated in rank order.
  virtual std::vector<std::uint64_t> news() const = 0;
  virtual void conclude(std::span<const std::uint64_t> news_of_all) = 0;

  // All ways to execute a collective of n_bytes (of float32, if the type matters), with the chosen one marked.
  virtual std::vector<Candidate> candidates(Collective collective, std::size_t n_bytes) const = 0;
};

}  // namespace ciranda
