// Allreduce, and reduce (which only the root receives), by direct exchange over the pair channels, for ranks that do
// not all share memory.
//
// One shot: everybody sends everything to everybody; one delay. Two shot: rank r gets slice r of every block from all
// others, reduces it in rank order, sends the result to all. Unlike a ring, neither rounds between hops nor rotates the
// order of the sum, so the bits are those of kernels::reduce over the inputs in rank order.
// What is rounded to travel as bfloat16, and is by all of them with the same bits, is in rounding.hpp.
// Blocks are pipelined: the slices of block b + 1 travel while block b is reduced and its results travel.
#pragma once

#include <memory>

#include "collective/host_parts.hpp"
#include "collective/rounding.hpp"
#include "collective/running_collective.hpp"
#include "collective/scratch.hpp"
#include "fuse/plan.hpp"
#include "kernels/kernels.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// The scratch is the collective's until it is gone.
std::unique_ptr<RunningCollective> direct_allreduce_one_shot(Mesh& mesh, const Plan& plan,
                                                             const kernels::Reduction& reduction, Scratch& scratch,
                                                             const Rounding& rounding = {});

// REQUIRES: if it rounds, it rounds each rank's inputs.
// segment_bytes: a rank's share of one block, a multiple of 64. The scratch is the collective's until it is gone.
std::unique_ptr<RunningCollective> direct_allreduce_two_shot(Mesh& mesh, const Plan& plan,
                                                             const kernels::Reduction& reduction,
                                                             std::size_t segment_bytes, Scratch& scratch,
                                                             const Rounding& rounding = {});

// For ranks on several hosts, some of them with several: a host combines its own inputs first, and as many ranks of
// each as the smallest has exchange slices of that with the other hosts. What leaves a host is that of one rank, not of
// all, or of the few parts that it can combine (host_parts.hpp); but there are four delays instead of two. The bits are
// the same still, because each part is a subtree of the tree over all. REQUIRES: combines_in_parts(plan); several
// hosts; if it rounds, each has one part, of so many ranks. `hosts` outlives the collective.
std::unique_ptr<RunningCollective> direct_allreduce_by_hosts(Mesh& mesh, const Plan& plan,
                                                             const kernels::Reduction& reduction,
                                                             const HostParts& hosts, std::size_t segment_bytes,
                                                             Scratch& scratch, const Rounding& rounding = {});

// Recursive doubling: at each level of the tree over ranks (aligned_blocks.hpp) a rank swaps what its block gives with
// one of the block beside it, and combines the two; after log2(n) rounds it has the result. So a rank sends log2(n)
// times the whole, not n - 1 times, and to as many others; for many ranks and little to send. Where ranks are no power
// of two, those of a block that has fewer give what they have to several. The bits are those of the tree.
// Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005.
// REQUIRES: combines_in_parts(plan). segment_bytes: what is carried out at a time, a multiple of 64.
std::unique_ptr<RunningCollective> direct_allreduce_doubling(Mesh& mesh, const Plan& plan,
                                                             const kernels::Reduction& reduction,
                                                             std::size_t segment_bytes, Scratch& scratch,
                                                             const Rounding& rounding = {});

// Whether everybody takes part, and the inputs of some ranks can be combined, stored in the plan's own type, and
// combined with others later without rounding twice. Not so for 16-bit floats, averages of integers and scaled
// integers.
bool combines_in_parts(const Plan& plan);

}  // namespace ciranda
