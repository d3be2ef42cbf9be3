#include "collective/stepped_ranks.hpp"

#include <limits>
#include <map>

#include "collective/direct_allreduce.hpp"
#include "collective/direct_broadcast.hpp"
#include "collective/direct_exchange.hpp"
#include "collective/direct_reducescatter.hpp"
#include "collective/shm_allreduce.hpp"
#include "collective/shm_broadcast.hpp"
#include "collective/shm_exchange.hpp"
#include "collective/shm_reducescatter.hpp"
#include "collective/tree_broadcast.hpp"

namespace ciranda::testing {
namespace {

constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();

LoopbackOptions small_memory() {
  LoopbackOptions options;
  options.slot_bytes = kSlotBytes;
  options.ring_bytes = 128;  // short writes and reads
  return options;
}

// An algorithm together with its scratch, which the stepped ranks do not share.
struct WithScratch final : RunningCollective {
  template <typename Start>
  explicit WithScratch(Start start) : running(start(scratch)) {}
  Progress step() override { return running->step(); }
  std::vector<int> awaited() const override { return running->awaited(); }

  Scratch scratch;
  std::unique_ptr<RunningCollective> running;
};

template <typename Start>
std::unique_ptr<RunningCollective> with_scratch(Start start) {
  return std::make_unique<WithScratch>(start);
}

// Hosts of the largest power of two that divides the ranks; of half of them, where that is all.
const HostParts& alike(int n_ranks) {
  static std::map<int, HostParts> all;
  int n = n_ranks & -n_ranks;
  if (n == n_ranks) n /= 2;
  std::vector<int> host_of;
  for (int rank = 0; rank < n_ranks; ++rank) host_of.push_back(rank / n);
  return all.try_emplace(n_ranks, runs_of(host_of)).first->second;
}

// Two hosts of three ranks or four; of fewer ranks one has one.
const HostParts& unlike(int n_ranks) {
  static std::map<int, HostParts> all;
  std::vector<int> host_of;
  const int of_first = n_ranks < 6 ? n_ranks - 1 : n_ranks / 2;
  for (int rank = 0; rank < n_ranks; ++rank) host_of.push_back(rank < of_first ? 0 : 1);
  return all.try_emplace(n_ranks, runs_of(host_of)).first->second;
}

// Of hosts of one, two or three ranks, some of which lie apart.
std::unique_ptr<RunningCollective> along(TreeShape shape, Mesh& mesh, const Plan& plan) {
  std::vector<int> host_of;
  for (int rank = 0; rank < mesh.size(); ++rank) host_of.push_back(rank % 4 == 3 ? 0 : rank / 2);
  return tree_broadcast(mesh, plan, place_in_tree(shape, host_of, plan.root, mesh.rank()), kSegmentBytes);
}

}  // namespace

const std::vector<Algorithm>& algorithms() {
  using kernels::Reduction;
  static const std::vector<Algorithm> table{
      {"ShmAllreduceOneShot", Collective::kAllreduce, true, kSlotBytes,
       [](Mesh&, ArenaSession* s, const Plan& p, const Reduction& r) { return shm_allreduce_one_shot(*s, p, r); }},
      {"ShmAllreduceTwoShot", Collective::kAllreduce, true, kAny,
       [](Mesh&, ArenaSession* s, const Plan& p, const Reduction& r) {
         return shm_allreduce_two_shot(*s, p, r, s->slot_bytes());
       }},
      {"ShmAllreduceTwoShotInShortChunks", Collective::kAllreduce, true, kAny,
       [](Mesh&, ArenaSession* s, const Plan& p, const Reduction& r) {
         return shm_allreduce_two_shot(*s, p, r, kSegmentBytes);
       }},
      {"DirectAllreduceOneShot", Collective::kAllreduce, false, kAny,
       [](Mesh& m, ArenaSession*, const Plan& p, const Reduction& r) {
         return with_scratch([&](Scratch& scratch) { return direct_allreduce_one_shot(m, p, r, scratch); });
       }},
      {"DirectAllreduceTwoShot", Collective::kAllreduce, false, kAny,
       [](Mesh& m, ArenaSession*, const Plan& p, const Reduction& r) {
         return with_scratch(
             [&](Scratch& scratch) { return direct_allreduce_two_shot(m, p, r, kSegmentBytes, scratch); });
       }},
      {"DirectAllreduceByHosts", Collective::kAllreduce, false, kAny,
       [](Mesh& m, ArenaSession*, const Plan& p, const Reduction& r) {
         return with_scratch([&](Scratch& scratch) {
           if (!combines_in_parts(p)) return direct_allreduce_two_shot(m, p, r, kSegmentBytes, scratch);
           return direct_allreduce_by_hosts(m, p, r, alike(m.size()), kSegmentBytes, scratch);
         });
       }},
      {"DirectAllreduceByUnlikeHosts", Collective::kAllreduce, false, kAny,
       [](Mesh& m, ArenaSession*, const Plan& p, const Reduction& r) {
         return with_scratch([&](Scratch& scratch) {
           if (!combines_in_parts(p)) return direct_allreduce_two_shot(m, p, r, kSegmentBytes, scratch);
           return direct_allreduce_by_hosts(m, p, r, unlike(m.size()), kSegmentBytes, scratch);
         });
       }},
      {"DirectAllreduceDoubling", Collective::kAllreduce, false, kAny,
       [](Mesh& m, ArenaSession*, const Plan& p, const Reduction& r) {
         return with_scratch([&](Scratch& scratch) {
           if (!combines_in_parts(p)) return direct_allreduce_two_shot(m, p, r, kSegmentBytes, scratch);
           return direct_allreduce_doubling(m, p, r, kSegmentBytes, scratch);
         });
       }},
      {"ShmBroadcast", Collective::kBroadcast, true, kAny,
       [](Mesh&, ArenaSession* s, const Plan& p, const Reduction&) { return shm_broadcast(*s, p); }},
      {"DirectBroadcast", Collective::kBroadcast, false, kAny,
       [](Mesh& m, ArenaSession*, const Plan& p, const Reduction&) { return direct_broadcast(m, p); }},
      {"TreeBroadcast", Collective::kBroadcast, false, kAny,
       [](Mesh& m, ArenaSession*, const Plan& p, const Reduction&) { return along(TreeShape::kBinomial, m, p); }},
      {"ChainBroadcast", Collective::kBroadcast, false, kAny,
       [](Mesh& m, ArenaSession*, const Plan& p, const Reduction&) { return along(TreeShape::kChain, m, p); }},
      {"ShmReducescatter", Collective::kReducescatter, true, kAny,
       [](Mesh&, ArenaSession* s, const Plan& p, const Reduction& r) { return shm_reducescatter(*s, p, r); }},
      {"DirectReducescatter", Collective::kReducescatter, false, kAny,
       [](Mesh& m, ArenaSession*, const Plan& p, const Reduction& r) {
         return with_scratch([&](Scratch& scratch) { return direct_reducescatter(m, p, r, kSegmentBytes, scratch); });
       }},
      {"ShmAllgather", Collective::kAllgather, true, kAny,
       [](Mesh&, ArenaSession* s, const Plan& p, const Reduction&) { return shm_exchange(*s, p); }},
      {"DirectAllgather", Collective::kAllgather, false, kAny,
       [](Mesh& m, ArenaSession*, const Plan& p, const Reduction&) { return direct_exchange(m, p); }},
      {"ShmAlltoall", Collective::kAlltoall, true, kAny,
       [](Mesh&, ArenaSession* s, const Plan& p, const Reduction&) { return shm_exchange(*s, p); }},
      {"DirectAlltoall", Collective::kAlltoall, false, kAny,
       [](Mesh& m, ArenaSession*, const Plan& p, const Reduction&) { return direct_exchange(m, p); }},
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
    const Plan& plan = *job.plan;
    rank.running = job.algorithm->start(*rank.mesh, &*rank.session, plan,
                                        {plan.dtype, plan.op, plan.prescale, plan.postscale, plan.n_average});
  }
  const Progress progress = rank.running->step();
  if (progress != Progress::kDone) return progress == Progress::kMoved;
  rank.running.reset();
  rank.queue.pop_front();
  return true;
}

}  // namespace ciranda::testing
