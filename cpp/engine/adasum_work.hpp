// The work of reductions with op Adasum: see collective/adasum.hpp.
#pragma once

#include <span>
#include <vector>

#include "engine/work.hpp"
#include "request/request.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// Phase after phase, until all tensors are done. `contributors`: the members that are summed, ascending; the others
// help with what they are asked for. REQUIRES: allreduces that agree in op and factors. The requests' memory and the
// mesh outlive the work.
Work adasum_work(std::span<const Request* const> requests, std::vector<int> contributors, const Mesh& mesh);

}  // namespace ciranda
