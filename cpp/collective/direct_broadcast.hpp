// Broadcast by direct exchange: the root streams to every other rank at once.
#pragma once

#include <memory>

#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

std::unique_ptr<RunningCollective> direct_broadcast(Mesh& mesh, const Plan& plan);

}  // namespace ciranda
