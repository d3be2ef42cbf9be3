// The work of weighted averages, in two phases: ranks tell each other their weights, then the reduction multiplies
// every input by its weight over the sum of all, on the way.
//
// Weights may differ with every call without being agreed on: that is why they travel with the data.
#pragma once

#include <vector>

#include "engine/in_flight.hpp"
#include "engine/work.hpp"
#include "negotiate/participant.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// The first phase, which continues with the second. A request whose weights cannot be used fails, with the same error
// on all ranks. `contributors`: the members that take part, ascending. in_flight, where the requests stay until the
// work is done, and the mesh outlive the work. REQUIRES: weighted averages that agree in factors.
Work weighted_average(std::vector<Participant::Ticket> tickets, std::vector<int> contributors, InFlight& in_flight,
                      const Mesh& mesh);

}  // namespace ciranda
