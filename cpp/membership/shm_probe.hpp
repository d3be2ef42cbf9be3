// probe_shared_memory: determines which ranks of a host can share memory, and maps the memory that they share.
//
// A group is the ranks with equal host ids; its lowest rank leads. Messages travel, sealed, in a tree over the group's
// control connections (host_links.hpp): a rank passes on what comes from above, and the answers of those below it.
//   1. The leader creates the segment, writes a random nonce into it, and sends path and nonce.
//   2. Each member opens the segment, allocates its own part (SegmentLayout), checks the nonce, writes a nonce of its
//      own to its probe line, and sends that nonce.
//   3. The leader checks these nonces, and sends the list of the ranks that passed, and whether all of the group said
//      that they can do with few connections among themselves.
// Nothing is inferred from names.
//
// Called by join_world(); one thread a rank; blocks until the deadline at most. Failure: a rank that cannot take part
// does not share (the leader warns, once, with the reason); an error means that a peer is lost or has sent an invalid
// message.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "membership/acceptor.hpp"
#include "membership/wait_limit.hpp"
#include "transport/socket_mesh.hpp"

namespace ciranda {

struct ShmProbeOptions {
  int rank = 0;
  std::vector<int> group;          // ascending, with `rank` in it, at least two
  std::size_t slot_bytes = 0;      // 0: no slots, because not all ranks of the job are in the group
  bool needs_few_sockets = false;  // this rank can wake the others, and see them end, with few connections
  std::string folder;              // for the segment that the leader creates
  WaitLimit limit;
  std::function<const KeyedSocket&(int rank)> control;  // with the ranks next to it in the tree
  std::function<std::string(int rank)> name;            // a rank in messages
  std::function<void(const std::string&)> warn;
};

struct ShmProbeResult {
  std::optional<SharedMemory> shared;  // empty: this rank does not share
  std::vector<int> ranks;              // the ranks that share, including this one; else empty
  bool needs_few_sockets = false;      // the same on all of these ranks
};

Result<ShmProbeResult> probe_shared_memory(const ShmProbeOptions& options);

}  // namespace ciranda
