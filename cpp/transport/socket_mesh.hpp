// SocketMesh: the mesh of real jobs. Peers that share memory talk through rings in it, all others through TCP, where
// the data may have several connections (StripedChannel).
//
// With every peer there is one control connection. Where memory is shared it carries nothing but wake-ups (and these
// only if the peer's bell could not be opened); everywhere its end is how the peer's end is noticed, together with a
// process descriptor for peers on this machine, which works even while a forked child of the peer holds the sockets.
// A host that vanishes, or a cable that is cut, ends nothing: that is noticed by what stays unacknowledged.
//
// Threads: as Mesh. Destruction closes all connections in a way that peers see at once; not in a forked child, where it
// leaves them alone.
// Ownership: everything handed in.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "transport/bell.hpp"
#include "transport/mesh.hpp"
#include "transport/segment_layout.hpp"
#include "transport/shm_segment.hpp"
#include "transport/socket.hpp"

namespace ciranda {

inline constexpr std::size_t kMostSockets = 16;

struct SocketMeshPeer {
  PeerInfo info;
  UniqueFd control;            // connected, for every rank but one's own
  std::vector<UniqueFd> data;  // connected, unless memory is shared; at most kMostSockets
  std::optional<Bell> bell;    // only where memory is shared; without it the control connection wakes
  UniqueFd process;            // a pidfd, where there can be one
};

struct SharedMemory {
  ShmSegment segment;
  SegmentLayout layout;
  std::vector<int> members;  // rank by index in the layout, including some that turned out not to share perhaps
};

struct SocketMeshParts {
  int rank = 0;
  std::vector<SocketMeshPeer> peers;  // by rank, with an entry for one's own
  Bell bell;                          // one's own
  std::optional<SharedMemory> shared;
  bool checks_data = false;  // what comes by sockets; the peers must know
  // A peer is lost whose host has acknowledged nothing of what it was sent for so long.
  std::chrono::milliseconds link_timeout = kLinkTimeout;
};

// REQUIRES: peer.info.shares_memory only for members of parts.shared.
Result<std::unique_ptr<Mesh>> make_socket_mesh(SocketMeshParts parts);

}  // namespace ciranda
