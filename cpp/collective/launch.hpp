// The algorithms, one a source file, and Launch, all that one may need to begin. Which is taken where, and what each
// costs, is in backend/algorithms.hpp.
//
// The bits of every reduction are those of kernels::reduce over the inputs in rank order, whatever algorithm carries it
// out; what is rounded to travel as bfloat16 is so by all with the same bits (rounding.hpp). "In shared memory" means
// an arena of all ranks, "direct" the pair channels, for ranks that do not all share memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collective/arena_session.hpp"
#include "collective/host_parts.hpp"
#include "collective/rounding.hpp"
#include "collective/running_collective.hpp"
#include "collective/scratch.hpp"
#include "fuse/plan.hpp"
#include "kernels/kernels.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// The same on all ranks, but for what is their own. What it refers to outlives the collective, to which the session and
// the scratch belong until it is gone.
struct Launch {
  Mesh& mesh;
  ArenaSession* session;  // null: the ranks share no memory
  const Plan& plan;
  kernels::Reduction reduction;
  const HostParts& host_parts;
  const std::vector<int>& hosts;      // by rank, a number of its own
  std::size_t segment_bytes;          // what is moved at a time; a multiple of 64
  std::size_t channel_segment_bytes;  // the setting
  Scratch& scratch;
  Rounding rounding;
};

// --- Allreduce, and reduce (which only the root receives), in shared memory. What lies in memory that the others have
// mapped (SharedRegions) is read from there by two shot; if that holds for all ranks, the results are written there too
// and nothing passes through slots.

// Everybody packs everything, everybody reduces everything. One round, so best for small messages.
// REQUIRES: plan.n_bytes <= session->slot_bytes().
std::unique_ptr<RunningCollective> shm_allreduce_one_shot(const Launch& launch);

// Each rank reduces its own slice of every chunk from all slots, then all read it: 1/n of the arithmetic. Chunk k + 1
// is packed before anyone waits for chunk k. A rank's own slice never passes through its slot on the way in.
// REQUIRES: segment_bytes, of a chunk, is at most session->slot_bytes().
std::unique_ptr<RunningCollective> shm_allreduce_two_shot(const Launch& launch);

// --- The same, direct. Unlike a ring, they neither round between hops nor rotate the order of the sum.

// Everybody sends everything to everybody; one delay.
std::unique_ptr<RunningCollective> direct_allreduce_one_shot(const Launch& launch);

// Rank r gets slice r of every block from all others, reduces it in rank order, sends the result to all. Blocks are
// pipelined: the slices of block b + 1 travel while block b is reduced and its results travel. segment_bytes: a rank's
// share of one block. REQUIRES: if it rounds, it rounds each rank's inputs.
std::unique_ptr<RunningCollective> direct_allreduce_two_shot(const Launch& launch);

// For ranks on several hosts, some of them with several: a host combines its own inputs first, and as many ranks of
// each as the smallest has exchange slices of that with the other hosts. What leaves a host is that of one rank, not of
// all, or of the few parts that it can combine (host_parts.hpp); but there are four delays instead of two. The bits are
// the same still, because each part is a subtree of the tree over all. segment_bytes: such a rank's share of one block.
// REQUIRES: combines_in_parts(plan); several hosts; if it rounds, each has one part, of so many ranks.
std::unique_ptr<RunningCollective> direct_allreduce_by_hosts(const Launch& launch);

// Recursive doubling: at each level of the tree over ranks (aligned_blocks.hpp) a rank swaps what its block gives with
// one of the block beside it, and combines the two; after log2(n) rounds it has the result. So a rank sends log2(n)
// times the whole, not n - 1 times, and to as many others; for many ranks and little to send. Where ranks are no power
// of two, those of a block that has fewer give what they have to several.
// Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005.
// REQUIRES: combines_in_parts(plan).
std::unique_ptr<RunningCollective> direct_allreduce_doubling(const Launch& launch);

// Whether everybody takes part, and the inputs of some ranks can be combined, stored in the plan's own type, and
// combined with others later without rounding twice. Not so for 16-bit floats, averages of integers and scaled
// integers.
bool combines_in_parts(const Plan& plan);

// --- Reducescatter.

// A slot is shared out among the ranks; each reduces what is for it from all slots, straight into its output. One
// exchange: nobody needs another's result. A rank's own part never passes through its slot where it lies in one piece.
// REQUIRES: session->share_bytes() > 0.
std::unique_ptr<RunningCollective> shm_reducescatter(const Launch& launch);

// Each rank streams to every other what is for it, and reduces what comes in rank order, block after block, straight
// into its output. The next block arrives while one is reduced. A block is channel_segment_bytes of every rank's input.
std::unique_ptr<RunningCollective> direct_reducescatter(const Launch& launch);

// --- Broadcast.

// The root packs part after part of chunks into its slots, everybody else reads them. So they read the first soon,
// while the root packs the next.
std::unique_ptr<RunningCollective> shm_broadcast(const Launch& launch);

// The root streams to every other rank at once.
std::unique_ptr<RunningCollective> direct_broadcast_star(const Launch& launch);

// Along a tree (broadcast_tree.hpp): each rank passes on what it gets while more of it comes, segment_bytes at a time,
// so the root sends no more than a few ranks need from it.
std::unique_ptr<RunningCollective> direct_broadcast_tree(const Launch& launch);
std::unique_ptr<RunningCollective> direct_broadcast_chain(const Launch& launch);

// --- Allgather, alltoall, gather and scatter.

// Each rank packs what it has for the others chunk by chunk, and reads from the others' slots what they have for it.
// Where every receiver gets the same (allgather, gather), it takes the whole slot. Where each gets something else
// (alltoall, scatter), the slot is shared out. REQUIRES: session->share_bytes() > 0, if the plan has input_by_rank.
std::unique_ptr<RunningCollective> shm_exchange(const Launch& launch);

// Each rank streams to all others at once what it has for them.
std::unique_ptr<RunningCollective> direct_exchange(const Launch& launch);

}  // namespace ciranda
