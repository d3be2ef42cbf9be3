// NativeBackend: carries plans out on the CPU, over the mesh of one rank. Chooses the algorithm by a policy table.
//
// One thread (the holder of the progress token). Plans run one after the other, in the order of the response log.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "collective/arena_session.hpp"
#include "collective/running_collective.hpp"
#include "collective/scratch.hpp"
#include "fuse/plan.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

struct NativeOptions {
  std::size_t one_shot_bytes = 16 << 10;
  std::size_t segment_bytes = 256 << 10;
};

class NativeBackend {
 public:
  // The mesh outlives the backend.
  NativeBackend(Mesh& mesh, NativeOptions options);

  // From the next plan on, which is the next on all ranks of the mesh. The arena outlives the backend.
  void use(SharedArena& arena);

  // The plan outlives the collective, which is gone before the next is started. Null when there is nothing to move
  // between ranks: the plan is then carried out.
  std::unique_ptr<RunningCollective> start(const Plan& plan);

  // What the policy table says for a plan of this size (of a sum of float32, where that matters): "shm two-shot".
  std::string_view algorithm_name(Collective collective, std::size_t n_bytes) const;

 private:
  Mesh& mesh_;
  NativeOptions options_;
  int ranks_per_host_;  // 0: hosts make no difference
  std::optional<ArenaSession> session_;
  Scratch scratch_;
};

}  // namespace ciranda
