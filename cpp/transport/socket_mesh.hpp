// SocketMesh: the mesh of real jobs. Peers that share memory communicate through rings in it, all others through TCP,
// in records (RecordChannel), with a control connection and one or several for data. Those that were not given are made
// when the pair first uses them; a pair that has connections for data has one for control too.
//
// When a peer's control connection closes, the peer is gone. Peers that share memory have none if all of them can do
// without: then each notes there that it leaves (Absences), and some of the others have a descriptor of its process, of
// whom the first that sees its end notes that. Where they have control connections, these also carry wake-ups to peers
// whose bells cannot be opened. For other peers on this machine a process descriptor reports their end even while a
// forked child of theirs holds the sockets open. A host that vanishes, or a cut cable, closes no connection: it is
// detected by data that stays unacknowledged.
//
// Called by join_world(), which makes it, and probe_shared_memory(); through Mesh by its callers. Threads: as Mesh. The
// destructor closes all connections so that peers see it at once; in a forked child it leaves them open.
// Ownership: all parts passed in.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "transport/bell.hpp"
#include "transport/bells.hpp"
#include "transport/keyed_socket.hpp"
#include "transport/late_connections.hpp"
#include "transport/mesh.hpp"
#include "transport/seal.hpp"
#include "transport/segment_layout.hpp"
#include "transport/shm_segment.hpp"
#include "transport/socket.hpp"

namespace ciranda {

inline constexpr std::size_t kMostSockets = 16;

struct SocketMeshPeer {
  PeerInfo info;
  KeyedSocket control;            // connected; empty for this rank itself, where memory is shared, or if made later
  std::vector<KeyedSocket> data;  // connected, at most kMostSockets; empty: made later, if any is needed
  std::optional<BellPlace> bell;  // only if memory is shared; else the control connection carries wake-ups
  UniqueFd process;               // a pidfd, if this rank watches the peer by one
};

struct SharedMemory {
  ShmSegment segment;
  SegmentLayout layout;
  std::vector<int> members;  // ranks by index in the layout; some may have been found not to share the memory

  int index_of(int rank) const {
    return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  }
  Absences absences() const { return layout.absences(segment.memory()); }
};

// Notes that a rank of this host takes part no longer, and wakes those that have these bells, which otherwise see no
// end of it.
void announce_end(const SharedMemory& shared, int rank, std::span<const BellPlace> bells);

struct SocketMeshParts {
  int rank = 0;
  std::vector<SocketMeshPeer> peers;  // by rank, with an entry for this rank
  Bell bell;                          // of this rank
  std::optional<SharedMemory> shared;
  SealKind seals{};                                     // of records; the same on all ranks
  std::unique_ptr<LateConnections> late_connections{};  // may be null if all are given, or none is needed
  // A peer is lost if its host has acknowledged none of the data sent to it for this long.
  std::chrono::milliseconds link_timeout = kLinkTimeout;
};

// REQUIRES: peer.info.shares_memory only for members of parts.shared, which may already use their meshes. On failure
// they are told of this rank's end.
Result<std::unique_ptr<Mesh>> make_socket_mesh(SocketMeshParts parts);

}  // namespace ciranda
