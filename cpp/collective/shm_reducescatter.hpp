// Reducescatter in shared memory: a slot is shared out among the ranks; each reduces what is for it from all slots,
// straight into its output. One exchange: nobody needs another's result.
//
// A rank's own part never passes through its slot where it lies in one piece. The bits are those of kernels::reduce
// over the inputs in rank order, as allreduce's are.
#pragma once

#include <memory>

#include "collective/arena_session.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"
#include "kernels/kernels.hpp"

namespace ciranda {

// REQUIRES: session.share_bytes() > 0.
std::unique_ptr<RunningCollective> shm_reducescatter(ArenaSession& session, const Plan& plan,
                                                     const kernels::Reduction& reduction);

}  // namespace ciranda
