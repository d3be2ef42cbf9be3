#include "collective/stepped_ranks.hpp"

#include <limits>

namespace ciranda::testing {
namespace {

constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();

LoopbackOptions small_memory() {
  LoopbackOptions options;
  options.slot_bytes = kSlotBytes;
  options.ring_bytes = 128;  // short writes and reads
  return options;
}

// Hosts of the largest power of two that divides the ranks; of half of them, where that is all.
std::vector<int> alike(int n_ranks) {
  int n = n_ranks & -n_ranks;
  if (n == n_ranks) n /= 2;
  std::vector<int> host_of;
  for (int rank = 0; rank < n_ranks; ++rank) host_of.push_back(rank / n);
  return host_of;
}

// Two hosts of three ranks or four; of fewer ranks one has one.
std::vector<int> unlike(int n_ranks) {
  std::vector<int> host_of;
  const int of_first = n_ranks < 6 ? n_ranks - 1 : n_ranks / 2;
  for (int rank = 0; rank < n_ranks; ++rank) host_of.push_back(rank < of_first ? 0 : 1);
  return host_of;
}

// Of one, two or three ranks, some of which lie apart.
std::vector<int> scattered(int n_ranks) {
  std::vector<int> host_of;
  for (int rank = 0; rank < n_ranks; ++rank) host_of.push_back(rank % 4 == 3 ? 0 : rank / 2);
  return host_of;
}

// What another does where inputs cannot be combined in parts.
template <auto start>
std::unique_ptr<RunningCollective> or_two_shot(const Launch& launch) {
  return combines_in_parts(launch.plan) ? start(launch) : direct_allreduce_two_shot(launch);
}

}  // namespace

const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> table{
      {"ShmAllreduceOneShot", Collective::kAllreduce, true, kSlotBytes, shm_allreduce_one_shot},
      {"ShmAllreduceTwoShot", Collective::kAllreduce, true, kAny, shm_allreduce_two_shot, nullptr, {}, kSlotBytes},
      {"ShmAllreduceTwoShotInShortChunks", Collective::kAllreduce, true, kAny, shm_allreduce_two_shot},
      {"DirectAllreduceOneShot", Collective::kAllreduce, false, kAny, direct_allreduce_one_shot},
      {"DirectAllreduceTwoShot", Collective::kAllreduce, false, kAny, direct_allreduce_two_shot},
      {"DirectAllreduceByHosts", Collective::kAllreduce, false, kAny, or_two_shot<direct_allreduce_by_hosts>, alike},
      {"DirectAllreduceByUnlikeHosts", Collective::kAllreduce, false, kAny, or_two_shot<direct_allreduce_by_hosts>,
       unlike},
      {"DirectAllreduceDoubling", Collective::kAllreduce, false, kAny, or_two_shot<direct_allreduce_doubling>},
      {"ShmBroadcast", Collective::kBroadcast, true, kAny, shm_broadcast},
      {"DirectBroadcast", Collective::kBroadcast, false, kAny, direct_broadcast_star},
      {"TreeBroadcast", Collective::kBroadcast, false, kAny, direct_broadcast_tree, scattered},
      {"ChainBroadcast", Collective::kBroadcast, false, kAny, direct_broadcast_chain, scattered},
      {"ShmReducescatter", Collective::kReducescatter, true, kAny, shm_reducescatter},
      {"DirectReducescatter", Collective::kReducescatter, false, kAny, direct_reducescatter},
      {"ShmAllgather", Collective::kAllgather, true, kAny, shm_exchange},
      {"DirectAllgather", Collective::kAllgather, false, kAny, direct_exchange},
      {"ShmAlltoall", Collective::kAlltoall, true, kAny, shm_exchange},
      {"DirectAlltoall", Collective::kAlltoall, false, kAny, direct_exchange},
  };
  return table;
}

SteppedRanks::SteppedRanks(int n_ranks, std::uint64_t seed) : fabric_(n_ranks, small_memory()), random_(seed) {
  ranks_.resize(static_cast<std::size_t>(n_ranks));
  for (int rank = 0; rank < n_ranks; ++rank) {
    Rank& made = ranks_[static_cast<std::size_t>(rank)];
    made.mesh = fabric_.take_mesh(rank);
    made.session.emplace(*made.mesh->arena());
  }
}

void SteppedRanks::add(int rank, const Algorithm& algorithm, const Plan& plan) {
  ranks_[static_cast<std::size_t>(rank)].queue.push_back({&algorithm, &plan});
}

bool SteppedRanks::run(const std::function<bool(int rank)>& is_held_back) {
  std::vector<int> free;
  for (int rank = 0; rank < n_ranks(); ++rank) {
    if (!is_held_back || !is_held_back(rank)) free.push_back(rank);
  }
  const auto moves = [&](int rank) { return step(ranks_[static_cast<std::size_t>(rank)]); };
  for (bool any_moved = true; any_moved;) {
    // Some random steps, uneven among the ranks; then each once, which shows when all are stuck.
    for (std::size_t i = 0; i < 8 * free.size(); ++i) moves(free[random_() % free.size()]);
    any_moved = false;
    for (const int rank : free) any_moved |= moves(rank);
  }
  for (const Rank& rank : ranks_) {
    if (!rank.queue.empty()) return false;
  }
  return true;
}

bool SteppedRanks::step(Rank& rank) {
  if (rank.queue.empty()) return false;
  const Job& job = rank.queue.front();
  if (!rank.running) {
    const Algorithm& algorithm = *job.algorithm;
    const Plan& plan = *job.plan;
    rank.hosts = algorithm.hosts != nullptr ? algorithm.hosts(n_ranks()) : std::vector<int>(ranks_.size());
    rank.host_parts.emplace(runs_of(rank.hosts));
    rank.running = algorithm.start({*rank.mesh, &*rank.session, plan, *rank.host_parts, rank.hosts,
                                    algorithm.segment_bytes, kSegmentBytes, rank.scratch, algorithm.rounding});
  }
  const Progress progress = rank.running->step();
  if (progress != Progress::kDone) return progress == Progress::kMoved;
  rank.running.reset();
  rank.queue.pop_front();
  return true;
}

}  // namespace ciranda::testing
