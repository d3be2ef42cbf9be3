// Allgather, alltoall, gather and scatter by direct exchange: each rank streams to all others at once what it has for
// them.
#pragma once

#include <memory>

#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

std::unique_ptr<RunningCollective> direct_exchange(Mesh& mesh, const Plan& plan);

}  // namespace ciranda
