// The work of collectives that take splits (alltoall, scatter), in two phases: ranks tell each other how many rows they
// have for each other; then outputs are allocated and the rows travel.
//
// Splits may differ with every call without being agreed on: that is why they travel with the data. If those of one
// rank cannot be, the request fails on all ranks after the first phase.
#pragma once

#include "base/status.hpp"
#include "engine/in_flight.hpp"
#include "engine/work.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// The first phase, which continues with the second. The outputs that the operation gets are one for each tensor, and
// for an alltoall one more for each tensor behind those: how many rows came from each rank, as int64. Both in_flight,
// where the ticket's request stays until the work is done, and the mesh outlive the work. REQUIRES: settle_splits() was
// called on the request.
Work exchange_splits_first(Participant::Ticket ticket, InFlight& in_flight, const Mesh& mesh);

}  // namespace ciranda
