#include "progress/oversubscription.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>

namespace ciranda {
namespace {

// Not those that this process may use: ranks that are pinned to a core each do not oversubscribe the host.
int n_cores() { return static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L)); }

// Ranks that this one shares cores with, whether or not it shares memory with them.
int n_ranks_here(const Mesh& mesh) {
  const std::string& here = mesh.peer(mesh.rank()).host;
  int n = 1;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const PeerInfo& peer = mesh.peer(rank);
    if (rank != mesh.rank() && (peer.shares_memory || peer.host == here)) ++n;
  }
  return n;
}

}  // namespace

bool is_oversubscribed(const Mesh& mesh) { return n_ranks_here(mesh) > n_cores(); }

}  // namespace ciranda
