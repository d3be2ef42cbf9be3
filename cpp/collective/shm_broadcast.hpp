// Broadcast in shared memory: the root packs chunk after chunk into its slots, everybody else reads them.
#pragma once

#include <memory>

#include "collective/arena_session.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"

namespace ciranda {

std::unique_ptr<RunningCollective> shm_broadcast(ArenaSession& session, const Plan& plan);

}  // namespace ciranda
