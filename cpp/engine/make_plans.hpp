// make_plans: from an entry of the response log to what a backend carries out.
//
// Ranks in plans are members of the mesh that is given; whoever makes plans for a part of the ranks translates here.
// One thread (the holder of the progress token).
#pragma once

#include <deque>
#include <functional>

#include "base/status.hpp"
#include "engine/in_flight.hpp"
#include "fuse/plan.hpp"
#include "negotiate/participant.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// What is to be done for one entry: plans, one after the other, and then, if what comes next depends on what they
// brought, the work that continue_with() says.
struct Work {
  std::deque<Plan> plans;
  std::function<Result<Work>()> continue_with;  // null: nothing
};

// Not ok: this rank cannot go on (no memory for an output), so the circle breaks. The requests, and memory allocated
// for them, stay in in_flight, which must keep them until the work is done.
Result<Work> make_plans(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh);

}  // namespace ciranda
