// Allgather in shared memory: each rank packs its own bytes chunk by chunk, and reads the others' chunks as they come.
#pragma once

#include <memory>

#include "collective/arena_session.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"

namespace ciranda {

std::unique_ptr<RunningCollective> shm_allgather(ArenaSession& session, const Plan& plan);

}  // namespace ciranda
