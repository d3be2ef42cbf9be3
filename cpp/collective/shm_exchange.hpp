// Allgather, alltoall, gather and scatter in shared memory: each rank packs what it has for the others chunk by chunk,
// and reads from the others' slots what they have for it.
//
// Where every receiver gets the same (allgather, gather), it takes the whole slot. Where each gets something else
// (alltoall, scatter), the slot is shared out.
#pragma once

#include <memory>

#include "collective/arena_session.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"

namespace ciranda {

// REQUIRES: session.share_bytes() > 0, if the plan has input_by_rank.
std::unique_ptr<RunningCollective> shm_exchange(ArenaSession& session, const Plan& plan);

}  // namespace ciranda
