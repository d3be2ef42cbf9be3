// Allgather by direct exchange: everybody streams its own bytes to everybody else at once.
#pragma once

#include <memory>

#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

std::unique_ptr<RunningCollective> direct_allgather(Mesh& mesh, const Plan& plan);

}  // namespace ciranda
