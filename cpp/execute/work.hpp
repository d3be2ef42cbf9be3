// Work: what is to be done for one entry of the response log.
#pragma once

#include <functional>
#include <vector>

#include "base/status.hpp"
#include "call/request.hpp"
#include "fuse/plan.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// Plans, one after the other; and then, if what comes next depends on what they brought, the work that continue_with()
// says.
struct Work {
  std::vector<Plan> plans;
  std::function<Result<Work>()> continue_with;  // null: nothing
};

// Requests name roots by their rank in the world, plans by their place in the mesh. REQUIRES: a root in the mesh.
inline int root_member(const Terms& terms, const Mesh& mesh) {
  int member = mesh.size() - 1;
  while (member > 0 && mesh.peer(member).rank != terms.root) --member;
  return member;
}

}  // namespace ciranda
