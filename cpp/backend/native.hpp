// NativeBackend: carries plans out on the CPU, over the mesh of one rank. A policy table says which algorithms there
// are; where there are several, the cost model chooses, or the settings.
//
// One thread (the holder of the progress token). Plans run one after the other, in the order of the response log.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/candidate.hpp"
#include "backend/cost_model.hpp"
#include "base/config.hpp"
#include "collective/arena_session.hpp"
#include "collective/rounding.hpp"
#include "collective/running_collective.hpp"
#include "collective/scratch.hpp"
#include "fuse/plan.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// All the same on all ranks of a mesh.
struct NativeOptions {
  std::optional<std::size_t> one_shot_bytes;  // up to this size one shot, above not; none: as the costs say
  std::size_t segment_bytes = 256 << 10;
  std::string algorithm;  // of reductions, wherever possible: "one-shot", "two-shot", "by-hosts"; empty: by cost
  bool rounds_to_bfloat16 = false;  // float32 that is reduced among ranks that do not all share memory (rounding.hpp)
};
NativeOptions native_options(const Config& config);

class NativeBackend {
 public:
  // The mesh outlives the backend.
  NativeBackend(Mesh& mesh, NativeOptions options);

  // From the next plan on, which is the next on all ranks of the mesh. The arena outlives the backend.
  void use(SharedArena& arena);

  // The plan outlives the collective, which is gone before the next is started. Null when there is nothing to move
  // between ranks: the plan is then carried out.
  std::unique_ptr<RunningCollective> start(const Plan& plan);

  // An allreduce whose inputs, of all ranks one after the other, are here already.
  void combine(const Plan& plan, std::span<const std::byte> inputs) const;

  // What the policy table says for a plan of this size (of a sum of float32, where that matters): "shm two-shot".
  std::string_view algorithm_name(Collective collective, std::size_t n_bytes) const;
  // All that could be taken.
  std::vector<Candidate> candidates(Collective collective, std::size_t n_bytes) const;

 private:
  struct Choice;
  Choice choice(bool combines_in_parts, const Rounding& rounding) const;
  Rounding rounding_of(const Plan& plan) const;

  Mesh& mesh_;
  NativeOptions options_;
  CostModel costs_;
  int ranks_per_host_;  // 0: hosts make no difference
  std::optional<ArenaSession> session_;
  Scratch scratch_;
};

}  // namespace ciranda
