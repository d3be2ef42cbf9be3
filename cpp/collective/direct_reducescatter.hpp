// Reducescatter by direct exchange: each rank streams to every other what is for it, and reduces what comes in rank
// order, block after block, straight into its output. The next block arrives while one is reduced.
#pragma once

#include <memory>

#include "collective/running_collective.hpp"
#include "collective/scratch.hpp"
#include "fuse/plan.hpp"
#include "kernels/kernels.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// block_bytes: how much of every rank's input is reduced at a time, a multiple of 64. The scratch is the collective's
// until it is gone.
std::unique_ptr<RunningCollective> direct_reducescatter(Mesh& mesh, const Plan& plan,
                                                        const kernels::Reduction& reduction, std::size_t block_bytes,
                                                        Scratch& scratch);

}  // namespace ciranda
