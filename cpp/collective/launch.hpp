// The algorithms, one a source file, and Launch, the arguments of their start functions. backend/algorithms.hpp has
// their costs and the conditions for their use. Called by NativeBackend, through the table in algorithms.hpp; the start
// functions are in direct_*.cc and shm_*.cc; one thread (the holder of the progress lock).
//
// With every algorithm, the bits of a reduction are those of kernels::reduce over the inputs in rank order. If values
// are rounded to travel as bfloat16, all ranks round them to the same bits (rounding.hpp). "In shared memory" means an
// arena of all ranks; "direct" means the pair channels, for ranks that do not all share memory.
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
#include "transport/mesh.hpp"

namespace ciranda {

// The same on all ranks, except for a rank's own memory. All referenced objects outlive the collective. Until its end,
// the collective alone uses the session and the scratch.
struct Launch {
  Mesh& mesh;
  ArenaSession* session;  // null: the ranks share no memory
  const Plan& plan;
  const HostParts& host_parts;
  const std::vector<int>& hosts;      // by rank, the number of its host
  std::size_t segment_bytes;          // moved at a time; a multiple of 64
  std::size_t channel_segment_bytes;  // the setting
  Scratch& scratch;
  Rounding rounding;
};

// --- Allreduce, and reduce (of which only the root gets the result), in shared memory. Two shot reads inputs in memory
// that the others have mapped (SharedRegions) in place. If all ranks' tensors are in such memory, it also writes the
// results there, and nothing passes through slots.

// Each rank packs its whole input into its slot, and reduces everything from all slots. One round, so best for small
// messages.
// REQUIRES: plan.n_bytes <= session->slot_bytes().
std::unique_ptr<RunningCollective> shm_allreduce_one_shot(const Launch& launch);

// Each rank reduces its own slice of every chunk from all slots, then all read it: 1/n of the arithmetic. A rank packs
// chunk k + 1 before it waits for chunk k. It does not pack its input for its own slice.
// REQUIRES: segment_bytes, of a chunk, is at most session->slot_bytes().
std::unique_ptr<RunningCollective> shm_allreduce_two_shot(const Launch& launch);

// --- The same, direct. Unlike a ring, these algorithms do not round between hops, and keep the order of the sum.

// Each rank sends its whole input to every other; one delay.
std::unique_ptr<RunningCollective> direct_allreduce_one_shot(const Launch& launch);

// Rank r receives slice r of every block from all others, reduces it in rank order, and sends the result to all. Blocks
// are pipelined: the slices of block b + 1 travel while block b is reduced and its results travel. segment_bytes: a
// rank's share of one block. REQUIRES: if it rounds, it rounds each rank's inputs.
std::unique_ptr<RunningCollective> direct_allreduce_two_shot(const Launch& launch);

// For ranks on several hosts, some with several ranks. A host combines its own inputs first, to one or a few parts
// (host_parts.hpp). Then as many of its ranks as the smallest host has exchange slices of the parts with other hosts.
// So a host sends as much as one rank (or a few) would, not as all its ranks; but there are four delays instead of two.
// The bits are the same, because each part is a subtree of the tree over all ranks. segment_bytes: the share of one of
// these ranks in a block. REQUIRES: combines_in_parts(plan); several hosts; if it rounds, each host has one part, of
// rounding.n_together ranks.
std::unique_ptr<RunningCollective> direct_allreduce_by_hosts(const Launch& launch);

// Recursive doubling: at each level of the tree over ranks (aligned_blocks.hpp) a rank exchanges its block's result
// with a rank of the neighbouring block, and combines the two; after log2(n) rounds it has the final result. So a rank
// sends the whole log2(n) times, to as many ranks, instead of n - 1 times. Best for small tensors of many ranks. If n
// is no power of two, each rank of a smaller block serves several of the other.
// Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005.
// REQUIRES: combines_in_parts(plan).
std::unique_ptr<RunningCollective> direct_allreduce_doubling(const Launch& launch);

// True if all ranks take part, and the inputs of some ranks can be combined, stored in the plan's own type, and
// combined with others later without rounding twice. False for 16-bit floats, averages of integers and scaled integers.
bool combines_in_parts(const Plan& plan);

// --- Reducescatter.

// A slot is divided among the ranks. Each reduces its part of all slots, straight into its output. There is one
// exchange, since no rank needs another's result. A rank's input for its own part is read in place if it lies in one
// piece.
// REQUIRES: session->share_bytes() > 0.
std::unique_ptr<RunningCollective> shm_reducescatter(const Launch& launch);

// Each rank streams to every other that rank's part, and reduces arriving blocks in rank order, one after the other,
// straight into its output. The next block arrives meanwhile. A block is channel_segment_bytes of every rank's input.
std::unique_ptr<RunningCollective> direct_reducescatter(const Launch& launch);

// --- Broadcast.

// The root packs chunks into its slots part by part, and all others read them. They read a part while the root packs
// the next.
std::unique_ptr<RunningCollective> shm_broadcast(const Launch& launch);

// The root streams to every other rank at once.
std::unique_ptr<RunningCollective> direct_broadcast_star(const Launch& launch);

// Along a tree (broadcast_tree.hpp): each rank forwards segments of segment_bytes while later ones arrive, so the root
// sends to a few ranks only.
std::unique_ptr<RunningCollective> direct_broadcast_tree(const Launch& launch);
std::unique_ptr<RunningCollective> direct_broadcast_chain(const Launch& launch);

// --- Allgather, alltoall, gather and scatter.

// Each rank packs its data for the others chunk by chunk, and reads its data from the others' slots. If all receivers
// get the same data (allgather, gather), it fills the whole slot. If each gets other data (alltoall, scatter), the slot
// is divided among them. REQUIRES: session->share_bytes() > 0, if the plan has input_by_rank.
std::unique_ptr<RunningCollective> shm_exchange(const Launch& launch);

// Each rank streams its data to all others at once.
std::unique_ptr<RunningCollective> direct_exchange(const Launch& launch);

}  // namespace ciranda
