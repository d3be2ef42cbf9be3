// WayExpected: the way that the next call with tensors on a device probably goes, which is that of the last one. If it
// is kStaged, a call is staged when it is submitted, before the log has chosen its way. No result depends on it. Called
// by DataPlane (the holder of the progress lock), and Staged on any thread; part of WorldParts.
#pragma once

#include <atomic>
#include <string>

#include "agree/ways.hpp"
#include "base/config.hpp"
#include "base/way.hpp"
#include "call/request.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class WayExpected {
 public:
  WayExpected(const Config& config, const Mesh& mesh)
      : setting_(config.gpu_way), last_(shares_memory_with_all(mesh) ? Way::kPeer : Way::kStaged) {
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const bool has_neighbour = rank != mesh.rank() && mesh.peer(rank).shares_memory;
      may_be_peer_ = may_be_peer_ || (has_neighbour && setting_ != "staged");
    }
  }

  // Whether some call may go by peer.
  bool may_be_peer() const { return may_be_peer_; }
  // Whether to warn that a call is staged: the user has prescribed peer, and was not warned before.
  bool is_to_be_told() { return setting_ == "peer" && !has_told_.exchange(true, std::memory_order_relaxed); }
  Way of(const Request& request) const {
    const bool may = request.home != kStagedHome && may_go_by_peer(request.signature);
    return may ? last_.load(std::memory_order_relaxed) : Way::kStaged;
  }
  void went(Way way) { last_.store(way, std::memory_order_relaxed); }

 private:
  const std::string setting_;
  bool may_be_peer_ = false;
  std::atomic<Way> last_;
  std::atomic<bool> has_told_{false};
};

}  // namespace ciranda
