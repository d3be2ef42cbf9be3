// probe_shared_memory: finds out which ranks of a host really share memory, and gives it to them.
//
// The lowest rank of a group (those with equal host ids) leads: it makes the segment, writes a random nonce into it,
// and tells its path and the nonce over the authenticated control connections; each member opens it, allocates its own
// part of it (SegmentLayout), looks for the nonce, writes one of its own in its place and tells it; the leader looks
// for that, and tells all who passed. Nothing is inferred from names.
//
// Threads: one a rank; blocks until the deadline at most. Failure: a rank that cannot take part just does not share
// (the leader warns, once, with the reason); an error means that a peer is lost or nonsensical.
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
  std::vector<int> group;      // ascending, with `rank` in it, at least two
  std::size_t slot_bytes = 0;  // 0: no slots, because not all ranks of the job are in the group
  std::string folder;          // where the leader makes the segment
  WaitLimit limit;
  std::function<int(int rank)> control_fd;    // the control connection with a member
  std::function<std::string(int rank)> name;  // a rank in messages
  std::function<void(const std::string&)> warn;
};

struct ShmProbeResult {
  std::optional<SharedMemory> shared;  // empty: this rank does not share
  std::vector<int> ranks;              // who shares, this rank among them; else empty
};

Result<ShmProbeResult> probe_shared_memory(const ShmProbeOptions& options);

}  // namespace ciranda
