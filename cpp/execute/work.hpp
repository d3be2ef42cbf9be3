// Work: the plans that execute one entry of the response log. Made by collectives/, LaneArena and Consistency.
// Called by DataPlane, which runs it; made by make_plans.cc, functions.hpp, allgather_numbers.hpp, Consistency,
// LaneArena and execute/outputs.hpp; functions also used by RoundsInMemory and, through functions.hpp, by
// execute/collectives/; one thread (the holder of the progress lock).
#pragma once

#include <functional>
#include <vector>

#include "base/status.hpp"
#include "call/request.hpp"
#include "fuse/plan.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// The plans are executed one after the other. If the next step depends on their results, continue_with() then returns
// the further work, once may_continue().
struct Work {
  std::vector<Plan> plans;
  std::function<Result<Work>()> continue_with;           // null if there is no further work
  std::function<Result<bool>()> may_continue = nullptr;  // null: at once
};

// The root's number in the mesh, as plans need it. Requests have its rank in the world. REQUIRES: it is in the mesh.
inline int root_member(const Terms& terms, const Mesh& mesh) {
  int member = mesh.size() - 1;
  while (member > 0 && mesh.peer(member).rank != terms.root) --member;
  return member;
}

}  // namespace ciranda
