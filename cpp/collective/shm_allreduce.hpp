// Allreduce, and reduce (which only the root receives), in shared memory.
//
// One shot: everybody packs everything, everybody reduces everything. One round, so best for small messages.
// Two shot: each rank reduces its own slice of every chunk from all slots, then all read it: 1/n of the arithmetic.
// Chunk k + 1 is packed before anyone waits for chunk k. A rank's own slice never passes through its slot on the way
// in. What lies in memory that the others have mapped (SharedRegions) is read from there, and if that holds for all
// ranks, the results are written there too and nothing passes through slots. All give the bits of kernels::reduce over
// the inputs in rank order.
#pragma once

#include <memory>

#include "collective/arena_session.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"
#include "kernels/kernels.hpp"

namespace ciranda {

// REQUIRES: plan.n_bytes <= session.slot_bytes().
std::unique_ptr<RunningCollective> shm_allreduce_one_shot(ArenaSession& session, const Plan& plan,
                                                          const kernels::Reduction& reduction);

// chunk_bytes: a multiple of 64, at most session.slot_bytes(), and the same on all ranks.
std::unique_ptr<RunningCollective> shm_allreduce_two_shot(ArenaSession& session, const Plan& plan,
                                                          const kernels::Reduction& reduction, std::size_t chunk_bytes);

}  // namespace ciranda
