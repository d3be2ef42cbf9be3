#include "backend/native.hpp"

#include <array>
#include <limits>

#include "collective/direct_allreduce.hpp"
#include "collective/direct_broadcast.hpp"
#include "collective/direct_exchange.hpp"
#include "collective/direct_reducescatter.hpp"
#include "collective/hosts.hpp"
#include "collective/local.hpp"
#include "collective/shm_allreduce.hpp"
#include "collective/shm_broadcast.hpp"
#include "collective/shm_exchange.hpp"
#include "collective/shm_reducescatter.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kAnySize = std::numeric_limits<std::size_t>::max();

// kFourShot: where two delays more would cost more than the bytes that they save.
enum class SizeLimit : std::uint8_t { kOneShot, kFourShot, kNone };

struct Launch {
  Mesh& mesh;
  ArenaSession* session;
  const NativeOptions& options;
  const Plan& plan;
  kernels::Reduction reduction;
  int ranks_per_host;
  Scratch& scratch;
};
using Start = std::unique_ptr<RunningCollective> (*)(const Launch&);

// What there is to work with; each includes those before it.
enum class Memory : std::uint8_t {
  kChannels,     // pairs of ranks
  kArena,        // memory that all ranks share
  kSharedSlots,  // ... whose slots are large enough to be shared out among the ranks
};

struct PolicyRow {
  Collective collective;
  Memory needs;
  SizeLimit limit;  // the first row that fits is taken
  std::string_view name;
  Start start;
  bool is_by_hosts = false;  // needs several hosts with as many ranks each, and a plan that combines in parts
};

std::unique_ptr<RunningCollective> shm_one_shot(const Launch& l) {
  return shm_allreduce_one_shot(*l.session, l.plan, l.reduction);
}
std::unique_ptr<RunningCollective> shm_two_shot(const Launch& l) {
  return shm_allreduce_two_shot(*l.session, l.plan, l.reduction);
}
std::unique_ptr<RunningCollective> direct_one_shot(const Launch& l) {
  return direct_allreduce_one_shot(l.mesh, l.plan, l.reduction);
}
// Two ranks wait for each other at the end of each block, and no third has anything for them meanwhile: they fare best
// with large ones.
std::unique_ptr<RunningCollective> direct_two_shot(const Launch& l) {
  const std::size_t segment_bytes = l.options.segment_bytes * (l.mesh.size() == 2 ? 2 : 1);
  return direct_allreduce_two_shot(l.mesh, l.plan, l.reduction, segment_bytes, l.scratch);
}
std::unique_ptr<RunningCollective> by_hosts(const Launch& l) {
  return direct_allreduce_by_hosts(l.mesh, l.plan, l.reduction, l.ranks_per_host, l.options.segment_bytes, l.scratch);
}
std::unique_ptr<RunningCollective> through_arena(const Launch& l) { return shm_exchange(*l.session, l.plan); }
std::unique_ptr<RunningCollective> through_channels(const Launch& l) { return direct_exchange(l.mesh, l.plan); }

constexpr std::array kPolicy{
    PolicyRow{Collective::kAllreduce, Memory::kArena, SizeLimit::kOneShot, "shm one-shot", shm_one_shot},
    PolicyRow{Collective::kAllreduce, Memory::kArena, SizeLimit::kNone, "shm two-shot", shm_two_shot},
    PolicyRow{Collective::kAllreduce, Memory::kChannels, SizeLimit::kOneShot, "direct one-shot", direct_one_shot},
    PolicyRow{Collective::kAllreduce, Memory::kChannels, SizeLimit::kFourShot, "direct two-shot", direct_two_shot},
    PolicyRow{Collective::kAllreduce, Memory::kChannels, SizeLimit::kNone, "direct by hosts", by_hosts, true},
    PolicyRow{Collective::kAllreduce, Memory::kChannels, SizeLimit::kNone, "direct two-shot", direct_two_shot},
    PolicyRow{Collective::kReduce, Memory::kArena, SizeLimit::kOneShot, "shm one-shot", shm_one_shot},
    PolicyRow{Collective::kReduce, Memory::kArena, SizeLimit::kNone, "shm two-shot", shm_two_shot},
    PolicyRow{Collective::kReduce, Memory::kChannels, SizeLimit::kOneShot, "direct one-shot", direct_one_shot},
    PolicyRow{Collective::kReduce, Memory::kChannels, SizeLimit::kNone, "direct two-shot", direct_two_shot},
    PolicyRow{Collective::kReducescatter, Memory::kSharedSlots, SizeLimit::kNone, "shm reducescatter",
              [](const Launch& l) { return shm_reducescatter(*l.session, l.plan, l.reduction); }},
    PolicyRow{Collective::kReducescatter, Memory::kChannels, SizeLimit::kNone, "direct reducescatter",
              [](const Launch& l) {
                return direct_reducescatter(l.mesh, l.plan, l.reduction, l.options.segment_bytes, l.scratch);
              }},
    PolicyRow{Collective::kBroadcast, Memory::kArena, SizeLimit::kNone, "shm broadcast",
              [](const Launch& l) { return shm_broadcast(*l.session, l.plan); }},
    PolicyRow{Collective::kBroadcast, Memory::kChannels, SizeLimit::kNone, "direct broadcast",
              [](const Launch& l) { return direct_broadcast(l.mesh, l.plan); }},
    PolicyRow{Collective::kAllgather, Memory::kArena, SizeLimit::kNone, "shm exchange", through_arena},
    PolicyRow{Collective::kAllgather, Memory::kChannels, SizeLimit::kNone, "direct exchange", through_channels},
    PolicyRow{Collective::kGather, Memory::kArena, SizeLimit::kNone, "shm exchange", through_arena},
    PolicyRow{Collective::kGather, Memory::kChannels, SizeLimit::kNone, "direct exchange", through_channels},
    PolicyRow{Collective::kAlltoall, Memory::kSharedSlots, SizeLimit::kNone, "shm exchange", through_arena},
    PolicyRow{Collective::kAlltoall, Memory::kChannels, SizeLimit::kNone, "direct exchange", through_channels},
    PolicyRow{Collective::kScatter, Memory::kSharedSlots, SizeLimit::kNone, "shm exchange", through_arena},
    PolicyRow{Collective::kScatter, Memory::kChannels, SizeLimit::kNone, "direct exchange", through_channels},
};

const PolicyRow& choose(Collective collective, const std::optional<ArenaSession>& session, std::size_t n_bytes,
                        std::size_t one_shot_bytes, bool goes_by_hosts) {
  const Memory available = !session                      ? Memory::kChannels
                           : session->share_bytes() == 0 ? Memory::kArena
                                                         : Memory::kSharedSlots;
  for (const PolicyRow& row : kPolicy) {
    const std::size_t at_most = row.limit == SizeLimit::kOneShot    ? one_shot_bytes
                                : row.limit == SizeLimit::kFourShot ? 4 * one_shot_bytes
                                                                    : kAnySize;
    const bool fits = row.needs <= available && n_bytes <= at_most && row.is_by_hosts <= goes_by_hosts;
    if (row.collective == collective && fits) return row;
  }
  return kPolicy.back();  // not reached: each collective has a row that needs only channels, without a limit
}

}  // namespace

NativeBackend::NativeBackend(Mesh& mesh, NativeOptions options)
    : mesh_(mesh), options_(options), ranks_per_host_(ranks_per_host(mesh)) {
  if (mesh.arena() != nullptr) use(*mesh.arena());
}

void NativeBackend::use(SharedArena& arena) {
  session_.emplace(arena);
  options_.one_shot_bytes = std::min(options_.one_shot_bytes, session_->slot_bytes());
}

std::unique_ptr<RunningCollective> NativeBackend::start(const Plan& plan) {
  if (plan.n_bytes == 0) return nullptr;
  const kernels::Reduction reduction{plan.dtype, plan.op, plan.prescale, plan.postscale, plan.n_average, plan.weights};
  if (mesh_.size() == 1) {
    if (info(plan.collective).is_reduction) {
      local_reduce(plan, reduction);
    } else {
      local_copy(plan);
    }
    return nullptr;
  }
  const bool goes_by_hosts = ranks_per_host_ > 0 && combines_in_parts(plan);
  const PolicyRow& row = choose(plan.collective, session_, plan.n_bytes, options_.one_shot_bytes, goes_by_hosts);
  return row.start({mesh_, session_ ? &*session_ : nullptr, options_, plan, reduction, ranks_per_host_, scratch_});
}

std::string_view NativeBackend::algorithm_name(Collective collective, std::size_t n_bytes) const {
  return choose(collective, session_, n_bytes, options_.one_shot_bytes, ranks_per_host_ > 0).name;
}

}  // namespace ciranda
