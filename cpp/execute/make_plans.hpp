// make_plans: from an entry of the response log to what a backend carries out.
//
// Ranks in plans are members of the mesh that is given; whoever makes plans for a part of the ranks translates here.
// One thread (the holder of the progress lock).
#pragma once

#include <vector>

#include "agree/participant.hpp"
#include "base/status.hpp"
#include "execute/in_flight.hpp"
#include "execute/work.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// Not ok: this rank cannot go on (no memory for an output), so the world breaks. The requests, and memory allocated
// for them, stay in in_flight, which must keep them until the work is done.
Result<Work> make_plans(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh);

std::vector<const Request*> requests_of(const Participant::Execute& entry, InFlight& in_flight);

// The members that have not joined. REQUIRES: an entry with requests.
std::vector<int> contributors(const Participant::Execute& entry, int n_members);

}  // namespace ciranda
