// Broadcast in shared memory: the root packs part after part of chunks into its slots, everybody else reads them. So
// they read the first soon, while the root packs the next.
#pragma once

#include <memory>

#include "collective/arena_session.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"

namespace ciranda {

std::unique_ptr<RunningCollective> shm_broadcast(ArenaSession& session, const Plan& plan);

}  // namespace ciranda
