// All ranks of a collective on one thread, stepped in a seeded order: every interleaving of whole steps is possible,
// and a run can be repeated. No engine, no agreement: each rank has a queue of plans and carries them out in order.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "collective/arena_session.hpp"
#include "collective/launch.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda::testing {

inline constexpr std::size_t kSlotBytes = 4096;
inline constexpr std::size_t kSegmentBytes = 192;  // small, so that few bytes make many blocks

struct Algorithm {
  std::string_view name;
  Collective collective;
  bool in_arena;
  std::size_t max_bytes;  // of a plan's input
  std::unique_ptr<RunningCollective> (*start)(const Launch& launch);
  std::vector<int> (*hosts)(int n_ranks) = nullptr;  // by rank; null: all are on one
  Rounding rounding = {};
  std::size_t segment_bytes = kSegmentBytes;
};

// All of cpp/collective/ but the world of one.
const std::vector<Algorithm>& algorithms();

class SteppedRanks {
 public:
  SteppedRanks(int n_ranks, std::uint64_t seed);

  int n_ranks() const { return static_cast<int>(ranks_.size()); }

  SharedArena& arena(int rank) { return *ranks_[static_cast<std::size_t>(rank)].mesh->arena(); }

  // REQUIRES: the same algorithms, in the same order, for all ranks. The plan outlives the run.
  void add(int rank, const Algorithm& algorithm, const Plan& plan);

  // Steps the ranks, in random order, until all but those held back are done or stuck. Returns whether all are done.
  bool run(const std::function<bool(int rank)>& is_held_back = nullptr);

  bool is_done(int rank) const { return at(rank).queue.empty(); }
  // REQUIRES: !is_done(rank), and the rank has been stepped.
  std::vector<int> awaited(int rank) const { return at(rank).running->awaited(); }

 private:
  struct Job {
    const Algorithm* algorithm;
    const Plan* plan;
  };
  struct Rank {
    std::unique_ptr<Mesh> mesh;
    std::optional<ArenaSession> session;
    Scratch scratch;
    std::deque<Job> queue;
    // Of the front.
    std::vector<int> hosts;
    std::optional<HostParts> host_parts;
    std::unique_ptr<RunningCollective> running;
  };

  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  bool step(Rank& rank);  // whether it moved

  LoopbackFabric fabric_;
  std::vector<Rank> ranks_;
  std::mt19937_64 random_;
};

}  // namespace ciranda::testing
