#include "backend/native.hpp"

#include <algorithm>
#include <array>
#include <utility>

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

struct Launch {
  Mesh& mesh;
  ArenaSession* session;
  const NativeOptions& options;
  const Plan& plan;
  kernels::Reduction reduction;
  int ranks_per_host;
  Scratch& scratch;
  Rounding rounding;
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
  std::string_view name;
  Start start;
  // Where there are several for a collective and a kind of memory, the cost model knows them by this.
  std::optional<Algorithm> algorithm = std::nullopt;
};

std::unique_ptr<RunningCollective> shm_one_shot(const Launch& l) {
  return shm_allreduce_one_shot(*l.session, l.plan, l.reduction);
}
std::unique_ptr<RunningCollective> shm_two_shot(const Launch& l) {
  return shm_allreduce_two_shot(*l.session, l.plan, l.reduction);
}
std::unique_ptr<RunningCollective> direct_one_shot(const Launch& l) {
  return direct_allreduce_one_shot(l.mesh, l.plan, l.reduction, l.rounding);
}
// Two ranks wait for each other at the end of each block, and no third has anything for them meanwhile: they fare best
// with large ones.
std::unique_ptr<RunningCollective> direct_two_shot(const Launch& l) {
  const std::size_t n_segments = (l.mesh.size() == 2 ? 2 : 1) * (l.rounding.is_on() ? 2 : 1);  // half as large
  const std::size_t segment_bytes = l.options.segment_bytes * n_segments;
  return direct_allreduce_two_shot(l.mesh, l.plan, l.reduction, segment_bytes, l.scratch, l.rounding);
}
std::unique_ptr<RunningCollective> by_hosts(const Launch& l) {
  return direct_allreduce_by_hosts(l.mesh, l.plan, l.reduction, l.ranks_per_host, l.options.segment_bytes, l.scratch,
                                   l.rounding);
}
std::unique_ptr<RunningCollective> through_arena(const Launch& l) { return shm_exchange(*l.session, l.plan); }
std::unique_ptr<RunningCollective> through_channels(const Launch& l) { return direct_exchange(l.mesh, l.plan); }

// Of the rows of a collective, those that need the most of what there is count.
constexpr std::array kPolicy{
    PolicyRow{Collective::kAllreduce, Memory::kArena, "shm one-shot", shm_one_shot, Algorithm::kSharedOneShot},
    PolicyRow{Collective::kAllreduce, Memory::kArena, "shm two-shot", shm_two_shot, Algorithm::kSharedTwoShot},
    PolicyRow{Collective::kAllreduce, Memory::kChannels, "direct one-shot", direct_one_shot, Algorithm::kDirectOneShot},
    PolicyRow{Collective::kAllreduce, Memory::kChannels, "direct two-shot", direct_two_shot, Algorithm::kDirectTwoShot},
    PolicyRow{Collective::kAllreduce, Memory::kChannels, "direct by-hosts", by_hosts, Algorithm::kDirectByHosts},
    PolicyRow{Collective::kReduce, Memory::kArena, "shm one-shot", shm_one_shot, Algorithm::kSharedOneShot},
    PolicyRow{Collective::kReduce, Memory::kArena, "shm two-shot", shm_two_shot, Algorithm::kSharedTwoShot},
    PolicyRow{Collective::kReduce, Memory::kChannels, "direct one-shot", direct_one_shot, Algorithm::kDirectOneShot},
    PolicyRow{Collective::kReduce, Memory::kChannels, "direct two-shot", direct_two_shot, Algorithm::kDirectTwoShot},
    PolicyRow{Collective::kReducescatter, Memory::kSharedSlots, "shm reducescatter",
              [](const Launch& l) { return shm_reducescatter(*l.session, l.plan, l.reduction); }},
    PolicyRow{Collective::kReducescatter, Memory::kChannels, "direct reducescatter",
              [](const Launch& l) {
                return direct_reducescatter(l.mesh, l.plan, l.reduction, l.options.segment_bytes, l.scratch);
              }},
    PolicyRow{Collective::kBroadcast, Memory::kArena, "shm broadcast",
              [](const Launch& l) { return shm_broadcast(*l.session, l.plan); }},
    PolicyRow{Collective::kBroadcast, Memory::kChannels, "direct broadcast",
              [](const Launch& l) { return direct_broadcast(l.mesh, l.plan); }},
    PolicyRow{Collective::kAllgather, Memory::kArena, "shm exchange", through_arena},
    PolicyRow{Collective::kAllgather, Memory::kChannels, "direct exchange", through_channels},
    PolicyRow{Collective::kGather, Memory::kArena, "shm exchange", through_arena},
    PolicyRow{Collective::kGather, Memory::kChannels, "direct exchange", through_channels},
    PolicyRow{Collective::kAlltoall, Memory::kSharedSlots, "shm exchange", through_arena},
    PolicyRow{Collective::kAlltoall, Memory::kChannels, "direct exchange", through_channels},
    PolicyRow{Collective::kScatter, Memory::kSharedSlots, "shm exchange", through_arena},
    PolicyRow{Collective::kScatter, Memory::kChannels, "direct exchange", through_channels},
};

bool is_one_shot(Algorithm algorithm) {
  return algorithm == Algorithm::kSharedOneShot || algorithm == Algorithm::kDirectOneShot;
}

kernels::Reduction reduction_of(const Plan& plan) {
  return {plan.dtype, plan.op, plan.prescale, plan.postscale, plan.n_average, plan.weights};
}

}  // namespace

struct NativeBackend::Choice {
  const CostModel& costs;
  const NativeOptions& options;
  Memory available;
  std::size_t slot_bytes;
  bool goes_by_hosts;
  bool rounds_hosts;  // what hosts combine first, so all must have it combined first

  bool is_possible(const PolicyRow& row, Collective collective, Memory needs, std::size_t n_bytes) const {
    if (row.collective != collective || row.needs != needs) return false;
    if (row.algorithm == Algorithm::kSharedOneShot) return n_bytes <= slot_bytes;
    if (row.algorithm == Algorithm::kDirectTwoShot && rounds_hosts) return false;
    return row.algorithm != Algorithm::kDirectByHosts || goes_by_hosts;
  }

  // REQUIRES: both are possible, `later` stands further down in the table.
  bool is_better(const PolicyRow& later, const PolicyRow& earlier, std::size_t n_bytes) const {
    if (!options.algorithm.empty()) {
      if (earlier.name.ends_with(options.algorithm)) return false;
      if (later.name.ends_with(options.algorithm)) return true;
    }
    if (options.one_shot_bytes && is_one_shot(*earlier.algorithm)) return n_bytes > *options.one_shot_bytes;
    return !costs.is_no_slower(*earlier.algorithm, *later.algorithm, n_bytes);
  }

  Memory needed(Collective collective) const {
    Memory most = Memory::kChannels;
    for (const PolicyRow& row : kPolicy) {
      if (row.collective == collective && row.needs <= available) most = std::max(most, row.needs);
    }
    return most;
  }

  // One row at least: each collective has one that needs only channels, and is always possible.
  const PolicyRow& best(Collective collective, std::size_t n_bytes) const {
    const Memory needs = needed(collective);
    const auto is_candidate = [&](const PolicyRow& row) { return is_possible(row, collective, needs, n_bytes); };
    const auto* best = std::find_if(kPolicy.begin(), kPolicy.end(), is_candidate);
    for (const auto* row = best + 1; row < kPolicy.end(); ++row) {
      if (is_candidate(*row) && is_better(*row, *best, n_bytes)) best = row;
    }
    return *best;
  }
};

NativeOptions native_options(const Config& config) {
  NativeOptions options;
  if (config.one_shot_bytes >= 0) options.one_shot_bytes = static_cast<std::size_t>(config.one_shot_bytes);
  options.segment_bytes = std::min(options.segment_bytes, static_cast<std::size_t>(config.slot_bytes));
  options.algorithm = config.algorithm;
  options.rounds_to_bfloat16 = !config.wire_dtype.empty();
  return options;
}

NativeBackend::NativeBackend(Mesh& mesh, NativeOptions options)
    : mesh_(mesh),
      options_(std::move(options)),
      costs_(costs_of(mesh), placement_of(mesh)),
      ranks_per_host_(ranks_per_host(mesh)) {
  if (mesh.arena() != nullptr) use(*mesh.arena());
}

void NativeBackend::use(SharedArena& arena) { session_.emplace(arena); }

Rounding NativeBackend::rounding_of(const Plan& plan) const {
  const bool is_allreduce = plan.collective == Collective::kAllreduce || plan.collective == Collective::kReduce;
  if (!options_.rounds_to_bfloat16 || !is_allreduce || plan.dtype != DataType::kFloat32) return {};
  if (shares_memory_with_all(mesh_)) return {};
  return {ranks_per_host_ > 0 && combines_in_parts(plan) ? ranks_per_host_ : 1};
}

NativeBackend::Choice NativeBackend::choice(bool combines_in_parts, const Rounding& rounding) const {
  const Memory available = !session_                      ? Memory::kChannels
                           : session_->share_bytes() == 0 ? Memory::kArena
                                                          : Memory::kSharedSlots;
  return {costs_,
          options_,
          available,
          session_ ? session_->slot_bytes() : 0,
          ranks_per_host_ > 0 && combines_in_parts,
          rounding.is_on() && !rounding.is_of_inputs()};
}

void NativeBackend::combine(const Plan& plan, std::span<const std::byte> inputs) const {
  if (plan.n_bytes > 0) local_combine(plan, reduction_of(plan), rounding_of(plan), inputs);
}

std::unique_ptr<RunningCollective> NativeBackend::start(const Plan& plan) {
  if (plan.n_bytes == 0) return nullptr;
  const kernels::Reduction reduction = reduction_of(plan);
  if (mesh_.size() == 1) {
    if (info(plan.collective).is_reduction) {
      local_reduce(plan, reduction);
    } else {
      local_copy(plan);
    }
    return nullptr;
  }
  const Rounding rounding = rounding_of(plan);
  const PolicyRow& row = choice(combines_in_parts(plan), rounding).best(plan.collective, plan.n_bytes);
  return row.start(
      {mesh_, session_ ? &*session_ : nullptr, options_, plan, reduction, ranks_per_host_, scratch_, rounding});
}

std::string_view NativeBackend::algorithm_name(Collective collective, std::size_t n_bytes) const {
  return choice(true, {}).best(collective, n_bytes).name;
}

std::vector<Candidate> NativeBackend::candidates(Collective collective, std::size_t n_bytes) const {
  const Choice choice = this->choice(true, {});
  const Memory needs = choice.needed(collective);
  const PolicyRow& best = choice.best(collective, n_bytes);
  std::vector<Candidate> found;
  for (const PolicyRow& row : kPolicy) {
    if (!choice.is_possible(row, collective, needs, n_bytes)) continue;
    Candidate candidate{row.name, std::nullopt, &row == &best};
    if (row.algorithm) candidate.expected_us = costs_.microseconds(*row.algorithm, n_bytes);
    found.push_back(candidate);
  }
  return found;
}

}  // namespace ciranda
