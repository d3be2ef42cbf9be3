// SocketMesh: the mesh of real jobs. Peers that share memory communicate through rings in it, all others through TCP,
// in records (RecordChannel), with one or several data connections.
//
// Every peer has one control connection. If memory is shared, it carries only wake-ups, and these only if the peer's
// bell could not be opened. When the connection closes, the peer is gone. For peers on this machine a process
// descriptor also reports that, even while a forked child of the peer holds the sockets open. A host that vanishes, or
// a cut cable, closes no connection: it is detected by data that stays unacknowledged.
//
// Called by join_world(), which makes it, and probe_shared_memory(); through Mesh by its callers. Threads: as Mesh. The
// destructor closes all connections so that peers see it at once; in a forked child it leaves them open.
// Ownership: all parts passed in.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "transport/bell.hpp"
#include "transport/keyed_socket.hpp"
#include "transport/mesh.hpp"
#include "transport/seal.hpp"
#include "transport/segment_layout.hpp"
#include "transport/shm_segment.hpp"
#include "transport/socket.hpp"

namespace ciranda {

inline constexpr std::size_t kMostSockets = 16;

struct SocketMeshPeer {
  PeerInfo info;
  KeyedSocket control;            // connected, except for this rank itself
  std::vector<KeyedSocket> data;  // connected, unless memory is shared; at most kMostSockets
  std::optional<Bell> bell;       // only if memory is shared; without it the control connection carries wake-ups
  UniqueFd process;               // a pidfd, if there is one
};

struct SharedMemory {
  ShmSegment segment;
  SegmentLayout layout;
  std::vector<int> members;  // ranks by index in the layout; some may have been found not to share the memory
};

struct SocketMeshParts {
  int rank = 0;
  std::vector<SocketMeshPeer> peers;  // by rank, with an entry for this rank
  Bell bell;                          // of this rank
  std::optional<SharedMemory> shared;
  SealKind seals{};  // of records; the same on all ranks
  // A peer is lost if its host has acknowledged none of the data sent to it for this long.
  std::chrono::milliseconds link_timeout = kLinkTimeout;
};

// REQUIRES: peer.info.shares_memory only for members of parts.shared.
Result<std::unique_ptr<Mesh>> make_socket_mesh(SocketMeshParts parts);

}  // namespace ciranda
