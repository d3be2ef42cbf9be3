// WayExpected: the way that the next call with tensors on a device probably goes, which is that of the last one that
// could be other than staged; that of a call by one rank is known. If it is kStaged, a call is staged when it is
// submitted, before the log has chosen its way. No result depends on it. Called by DataPlane (the holder of the
// progress lock), and Staged on any thread; part of WorldParts.
#pragma once

#include <atomic>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "agree/ways.hpp"
#include "base/config.hpp"
#include "base/way.hpp"
#include "call/request.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class WayExpected {
 public:
  WayExpected(const Config& config, const Mesh& mesh)
      : setting_(config.gpu_way), n_ranks_(static_cast<std::size_t>(mesh.size())), last_(way_at_first(config, mesh)) {
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const bool has_neighbour = rank != mesh.rank() && (mesh.peer(rank).shares_memory || goes_by_nccl());
      has_neighbour_ = has_neighbour_ || has_neighbour;
    }
  }

  // Whether some call of so many ranks may go by the memory of devices.
  bool may_be_on_device(std::size_t n_members) const {
    return setting_ != "staged" && (n_members == 1 || has_neighbour_);
  }
  // Whether to warn that a call is staged: the user has prescribed another way, and was not warned before.
  bool is_to_be_told() {
    return (setting_ == "peer" || goes_by_nccl()) && !has_told_.exchange(true, std::memory_order_relaxed);
  }
  // Whether to warn that a call is staged in memory that is slow: the user was not warned before.
  bool is_first_slow() { return !has_told_of_slow_.exchange(true, std::memory_order_relaxed); }
  // The user has been told why no call goes there.
  void was_told() { has_told_.store(true, std::memory_order_relaxed); }
  // Whether a lane of so many ranks has all of the world's.
  bool is_of_world(std::size_t n_members) const { return n_members == n_ranks_; }
  // Whether no lane has said so before. By the holder of the progress lock.
  bool is_news(const std::string& why) { return said_.insert(why).second; }
  const std::string& setting() const { return setting_; }
  // What does not have to be staged by it, for a message.
  std::string_view what_goes() const {
    if (goes_by_nccl()) {
      return "only collectives other than scans, Adasum and weighted averages go by it, if each rank has its tensors "
             "on a GPU of its own, none has joined but for sums.";
    }
    return "all calls but Adasum and weighted averages go by peer, if all ranks share a host's memory and have their "
           "tensors on GPUs.";
  }
  // Whether a call by so many ranks may be part of a graph.
  bool may_be_captured(const Request& request, std::size_t n_members) const {
    return goes_by_nccl() && n_members > 1 && may_be_on_device(request, n_members);
  }
  // These two: of a call by so many ranks.
  Way of(const Request& request, std::size_t n_members) const {
    if (!may_be_on_device(request, n_members)) return Way::kStaged;
    return n_members == 1 ? Way::kPeer : last_.load(std::memory_order_relaxed);
  }
  void went(const Request& request, std::size_t n_members, Way way) {
    if (n_members > 1 && way != Way::kGraph && may_be_on_device(request, n_members))
      last_.store(way, std::memory_order_relaxed);
  }

 private:
  static Way way_at_first(const Config& config, const Mesh& mesh) {
    if (config.gpu_way == "nccl") return Way::kNccl;
    return shares_memory_with_all(mesh) ? Way::kPeer : Way::kStaged;
  }
  bool may_be_on_device(const Request& request, std::size_t n_members) const {
    if (!ciranda::may_be_on_device(request.home)) return false;
    return goes_by_nccl() && n_members > 1 ? may_go_by_nccl(request.signature)
                                           : may_go_by_peer(request.signature, n_members);
  }
  bool goes_by_nccl() const { return setting_ == "nccl"; }

  const std::string setting_;
  const std::size_t n_ranks_;
  bool has_neighbour_ = false;  // another rank with whose memory some call may go
  std::atomic<Way> last_;
  std::atomic<bool> has_told_{false};
  std::set<std::string> said_;
  std::atomic<bool> has_told_of_slow_{false};
};

}  // namespace ciranda
