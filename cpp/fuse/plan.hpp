// Plan: the work of a backend: the bytes to move, and how to combine them. It is made from requests for which all ranks
// are ready; making it copies no tensor. A plain value, made by execute/ and read by the backend, on one thread (the
// holder of the progress lock).
// Used by Work, StagedBlocks, Adasum, launch.hpp, RegionPieces, Backend, NativeBackend, PeerAlone, PeerCollective
// and NcclCollective; through launch.hpp by direct_*.cc and shm_*.cc; through functions.hpp by execute/collectives/,
// which makes plans; a plain value, pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "base/device_event.hpp"
#include "base/place.hpp"
#include "base/reduction.hpp"
#include "call/request.hpp"
#include "fuse/piece_list.hpp"

namespace ciranda {

// Ranks are numbered as in the mesh that executes the plan. Every rank has the same reduction, collective, n_bytes,
// contributors, receivers and root, but its own pieces.
//
// As a Reduction, it says how the pieces are combined, if they are; others are moved as bytes. The weights are those of
// the contributors; the divisor of Average is set once the ranks that take part are known.
struct Plan : Reduction {
  Plan() : Reduction{.dtype = DataType::kUInt8} {}

  Place place;  // of the memory of all pieces: that place's backend executes the plan
  Collective collective = Collective::kBarrier;
  std::vector<int> contributors;  // ranks whose input counts, ascending; empty: all. Others need no input
  std::vector<int> receivers;     // allreduce, reduce, allgather, gather: ranks that get the result; empty: all
  int root = -1;                  // broadcast, scatter: the rank that has the input; otherwise none

  // On a device: events after which the inputs may be read, and objects that mark the memory as in use while they live.
  std::vector<DeviceEventPtr> after;
  std::vector<std::shared_ptr<void>> holds;

  // The size of the work. Allreduce, reduce, broadcast: the whole range. Others: the longest part that any rank sends
  // to any one rank.
  std::size_t n_bytes = 0;

  InputPieces input;                       // allreduce, reduce, broadcast; allgather, gather: for every receiver
  OutputPieces output;                     // allreduce, reduce, broadcast, reducescatter
  std::vector<InputPieces> input_by_rank;  // reducescatter, alltoall, scatter: the part for each rank; otherwise empty
  std::vector<OutputPieces> output_by_rank;  // allgather, gather, alltoall, scatter: where each rank's part goes
  std::vector<std::size_t> n_bytes_from;     // the same: how long it is, also on a rank that has no memory for it

  // The pieces that this rank sends to a receiver.
  const InputPieces& input_for(int rank) const {
    return input_by_rank.empty() ? input : input_by_rank[static_cast<std::size_t>(rank)];
  }
  // The work of the plan in parts that are executed one after the other, with the same results. A part has at most so
  // many bytes, of all ranks together if each of `n_ranks` has a range of its own. The same cuts on all ranks.
  std::vector<Plan> in_chunks(std::size_t most_bytes, int n_ranks) &&;

  bool is_contributor(int rank) const { return is_in(contributors, rank); }
  bool is_receiver(int rank) const { return is_in(receivers, rank); }
  std::vector<int> contributors_of(int n_ranks) const {
    if (!contributors.empty()) return contributors;
    std::vector<int> all(static_cast<std::size_t>(n_ranks));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

 private:
  Plan part(std::size_t offset, std::size_t most_bytes) const;
  bool has_one_range() const;
  static bool is_in(const std::vector<int>& ranks, int rank) {
    return ranks.empty() || std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }
};

// One plan for each dtype, in order of appearance. REQUIRES: allreduces with the same op and factors, or a reduce.
std::vector<Plan> plan_reduction(std::span<const Request* const> requests);

// One plan for each dtype, as above. outputs[tensor] is memory for this rank's rows; none if nothing is received.
std::vector<Plan> plan_reducescatter(const Request& request, int n_ranks, int rank,
                                     std::span<std::byte* const> outputs);

Plan plan_broadcast(const Request& request);

// Allgather and gather. outputs[tensor] is memory for all ranks' rows, in rank order; none if nothing is received.
Plan plan_gather(const Request& request, const FirstDims& first_dims, std::span<std::byte* const> outputs);

// Alltoall and scatter. rows_to[tensor][rank]: the rows to send to each rank. rows_from[tensor][rank]: the rows to
// receive from each; outputs[tensor] is memory for these, in rank order, or none as above. longest_bytes: the most
// bytes from any rank to any other.
Plan plan_exchange(const Request& request, const FirstDims& rows_to, const FirstDims& rows_from,
                   std::span<std::byte* const> outputs, std::size_t longest_bytes);

}  // namespace ciranda
