// LaneMesh: the mesh of one lane's members. Its ranks are indices among the members, and its data channels are the
// lane's own streams. It forwards everything else to the world's mesh.
//
// Called by Lane, which makes it, LaneLog, AnswerWatch, RoundsInMemory and RoundsByMessages, through LaneParts; through
// Mesh by execute/, backend/ and collective/, on the same threads. Of the world's mesh and of this one, only the
// world's is asked to poll_events(), arm(), disarm(), sleep() and kick(). The world's mesh and the mux outlive this
// object.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/lane_mux.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class LaneMesh final : public Mesh {
 public:
  // `ranks`: the members' ranks in the world, ascending, with this rank's own. `arena`: memory that exactly the members
  // share, or null.
  LaneMesh(Mesh& world, LaneMux& mux, std::uint32_t lane, std::vector<int> ranks, SharedArena* arena)
      : world_(world), mux_(mux), lane_(lane), ranks_(std::move(ranks)), arena_(arena) {
    for (const int rank : ranks_) {
      const bool is_me = rank == world.rank();
      if (is_me) rank_ = static_cast<int>(channels_.size());
      channels_.push_back(is_me ? std::nullopt
                                : std::optional<LaneChannel>(std::in_place, mux, lane, rank, world.data(rank)));
    }
  }

  const std::vector<int>& ranks() const { return ranks_; }
  // A world rank's index among the members; none if it is no member.
  std::optional<int> member_of(int world_rank) const {
    const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), world_rank);
    if (found == ranks_.end() || *found != world_rank) return std::nullopt;
    return static_cast<int>(found - ranks_.begin());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  const PeerInfo& peer(int rank) const override { return world_.peer(ranks_[static_cast<std::size_t>(rank)]); }
  Channel& control(int peer) override { return world_.control(ranks_[static_cast<std::size_t>(peer)]); }
  Channel& data(int peer) override { return *channels_[static_cast<std::size_t>(peer)]; }
  SharedArena* arena() override { return arena_; }
  void abandon() override { mux_.abandon(lane_); }
  void poll_events() override REQUIRES(progress_lock) { world_.poll_events(); }
  void notify(Urgency urgency) override { world_.notify(urgency); }
  void arm(Sleeper sleeper) override REQUIRES(progress_lock) { world_.arm(sleeper); }
  void disarm() override REQUIRES(progress_lock) { world_.disarm(); }
  void sleep(std::optional<std::chrono::nanoseconds> at_most) override { world_.sleep(at_most); }
  void kick() override { world_.kick(); }
  const std::vector<int>& closed_peers() const override { return world_.closed_peers(); }

 private:
  Mesh& world_;
  LaneMux& mux_;
  std::uint32_t lane_;
  std::vector<int> ranks_;
  int rank_ = 0;
  SharedArena* arena_;
  std::vector<std::optional<LaneChannel>> channels_;
};

}  // namespace ciranda
