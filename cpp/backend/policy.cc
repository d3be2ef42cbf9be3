#include "backend/policy.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "backend/limits.hpp"
#include "collective/direct_allreduce.hpp"
#include "collective/direct_broadcast.hpp"
#include "collective/direct_exchange.hpp"
#include "collective/direct_reducescatter.hpp"
#include "collective/shm_allreduce.hpp"
#include "collective/shm_broadcast.hpp"
#include "collective/shm_exchange.hpp"
#include "collective/shm_reducescatter.hpp"
#include "collective/tree_broadcast.hpp"

namespace ciranda {
namespace {

std::unique_ptr<RunningCollective> shm_one_shot(const Launch& l) {
  return shm_allreduce_one_shot(*l.session, l.plan, l.reduction);
}
std::unique_ptr<RunningCollective> shm_two_shot(const Launch& l) {
  return shm_allreduce_two_shot(*l.session, l.plan, l.reduction, l.segment_bytes);
}
std::unique_ptr<RunningCollective> direct_one_shot(const Launch& l) {
  return direct_allreduce_one_shot(l.mesh, l.plan, l.reduction, l.scratch, l.rounding);
}
std::unique_ptr<RunningCollective> direct_two_shot(const Launch& l) {
  return direct_allreduce_two_shot(l.mesh, l.plan, l.reduction, l.segment_bytes, l.scratch, l.rounding);
}
std::unique_ptr<RunningCollective> by_hosts(const Launch& l) {
  return direct_allreduce_by_hosts(l.mesh, l.plan, l.reduction, l.host_parts, l.segment_bytes, l.scratch, l.rounding);
}
std::unique_ptr<RunningCollective> doubling(const Launch& l) {
  return direct_allreduce_doubling(l.mesh, l.plan, l.reduction, l.segment_bytes, l.scratch, l.rounding);
}
template <TreeShape shape>
std::unique_ptr<RunningCollective> along_tree(const Launch& l) {
  return tree_broadcast(l.mesh, l.plan, place_in_tree(shape, l.hosts, l.plan.root, l.mesh.rank()), l.segment_bytes);
}
std::unique_ptr<RunningCollective> through_arena(const Launch& l) { return shm_exchange(*l.session, l.plan); }
std::unique_ptr<RunningCollective> through_channels(const Launch& l) { return direct_exchange(l.mesh, l.plan); }

constexpr std::array kPolicy{
    PolicyRow{Collective::kAllreduce, Memory::kArena, "shm one-shot", shm_one_shot, Algorithm::kSharedOneShot},
    PolicyRow{Collective::kAllreduce, Memory::kArena, "shm two-shot", shm_two_shot, Algorithm::kSharedTwoShot},
    PolicyRow{Collective::kAllreduce, Memory::kChannels, "direct one-shot", direct_one_shot, Algorithm::kDirectOneShot},
    PolicyRow{Collective::kAllreduce, Memory::kChannels, "direct two-shot", direct_two_shot, Algorithm::kDirectTwoShot},
    PolicyRow{Collective::kAllreduce, Memory::kChannels, "direct by-hosts", by_hosts, Algorithm::kDirectByHosts},
    PolicyRow{Collective::kAllreduce, Memory::kChannels, "direct doubling", doubling, Algorithm::kDirectDoubling},
    PolicyRow{Collective::kReduce, Memory::kArena, "shm one-shot", shm_one_shot, Algorithm::kSharedOneShot},
    PolicyRow{Collective::kReduce, Memory::kArena, "shm two-shot", shm_two_shot, Algorithm::kSharedTwoShot},
    PolicyRow{Collective::kReduce, Memory::kChannels, "direct one-shot", direct_one_shot, Algorithm::kDirectOneShot},
    PolicyRow{Collective::kReduce, Memory::kChannels, "direct two-shot", direct_two_shot, Algorithm::kDirectTwoShot},
    PolicyRow{Collective::kReducescatter, Memory::kSharedSlots, "shm reducescatter",
              [](const Launch& l) { return shm_reducescatter(*l.session, l.plan, l.reduction); }},
    PolicyRow{Collective::kReducescatter, Memory::kChannels, "direct reducescatter",
              [](const Launch& l) {
                return direct_reducescatter(l.mesh, l.plan, l.reduction, l.options.channel_segment_bytes, l.scratch);
              }},
    PolicyRow{Collective::kBroadcast, Memory::kArena, "shm broadcast",
              [](const Launch& l) { return shm_broadcast(*l.session, l.plan); }},
    PolicyRow{Collective::kBroadcast, Memory::kChannels, "direct star",
              [](const Launch& l) { return direct_broadcast(l.mesh, l.plan); }, Algorithm::kBroadcastDirect},
    PolicyRow{Collective::kBroadcast, Memory::kChannels, "direct tree", along_tree<TreeShape::kBinomial>,
              Algorithm::kBroadcastTree},
    PolicyRow{Collective::kBroadcast, Memory::kChannels, "direct chain", along_tree<TreeShape::kChain>,
              Algorithm::kBroadcastChain},
    PolicyRow{Collective::kAllgather, Memory::kArena, "shm exchange", through_arena},
    PolicyRow{Collective::kAllgather, Memory::kChannels, "direct exchange", through_channels},
    PolicyRow{Collective::kGather, Memory::kArena, "shm exchange", through_arena},
    PolicyRow{Collective::kGather, Memory::kChannels, "direct exchange", through_channels},
    PolicyRow{Collective::kAlltoall, Memory::kSharedSlots, "shm exchange", through_arena},
    PolicyRow{Collective::kAlltoall, Memory::kChannels, "direct exchange", through_channels},
    PolicyRow{Collective::kScatter, Memory::kSharedSlots, "shm exchange", through_arena},
    PolicyRow{Collective::kScatter, Memory::kChannels, "direct exchange", through_channels},
};

constexpr std::size_t kLeastSegment = 4096;  // and all are whole ones, as those that CIRANDA_SEGMENT_BYTES prescribes
constexpr std::array<std::size_t, 2> kParts{2, 4};  // of the usual segment, that may be better

bool is_one_shot(Algorithm algorithm) {
  return algorithm == Algorithm::kSharedOneShot || algorithm == Algorithm::kDirectOneShot;
}

// What is passed on at a time: a chain is filled soon, and yet few calls of the system are made.
constexpr std::size_t kPassedOnBytes = 64 << 10;

bool has_no_segments(Algorithm algorithm) { return is_one_shot(algorithm) || algorithm == Algorithm::kBroadcastDirect; }
bool passes_on(Algorithm algorithm) {
  return algorithm == Algorithm::kBroadcastTree || algorithm == Algorithm::kBroadcastChain;
}

}  // namespace

NativeOptions native_options(const Config& config) {
  NativeOptions options;
  if (config.one_shot_bytes >= 0) options.one_shot_bytes = static_cast<std::size_t>(config.one_shot_bytes);
  if (config.segment_bytes > 0) options.segment_bytes = static_cast<std::size_t>(config.segment_bytes);
  options.channel_segment_bytes = std::min(options.channel_segment_bytes, static_cast<std::size_t>(config.slot_bytes));
  options.algorithm = config.algorithm;
  options.rounds_to_bfloat16 = !config.wire_dtype.empty();
  options.tries_ways = config.autotune;
  return options;
}

AgreementLimits agreement_limits(const Config& config, int n_ranks) {
  AgreementLimits limits;
  if (n_ranks == 2) limits.message_bytes = AgreementLimits::kMessageBytesOfTwo;
  if (config.direct_bytes >= 0)
    limits.memory_bytes = limits.message_bytes = static_cast<std::size_t>(config.direct_bytes);
  return limits;
}

std::size_t middle_of_class(std::size_t n_bytes) { return std::bit_ceil(n_bytes) / 4 * 3; }

bool Policy::is_possible(const PolicyRow& row, Collective collective, Memory needs, std::size_t n_bytes) const {
  if (row.collective != collective || row.needs != needs) return false;
  if (row.algorithm == Algorithm::kSharedOneShot) return n_bytes <= slot_bytes;
  // What hosts combine first is rounded, so all must have it combined first.
  if (row.algorithm == Algorithm::kDirectTwoShot && rounding.is_on() && !rounding.is_of_inputs()) return false;
  // Two ranks would do in it what they do in one shot.
  if (row.algorithm == Algorithm::kDirectDoubling) return combines_in_parts && n_ranks > 2;
  if (row.algorithm != Algorithm::kDirectByHosts) return true;
  return combines_in_parts && hosts_combine && !rounding.is_of_inputs();
}

// Where nothing was learned.
std::size_t Policy::usual_segment(const PolicyRow& row) const {
  if (!row.algorithm || has_no_segments(*row.algorithm)) return 0;
  if (passes_on(*row.algorithm)) return options.segment_bytes.value_or(kPassedOnBytes);
  const bool has_slots = row.algorithm == Algorithm::kSharedTwoShot;
  if (options.segment_bytes) return has_slots ? std::min(*options.segment_bytes, slot_bytes) : *options.segment_bytes;
  if (has_slots) return slot_bytes;
  if (row.algorithm != Algorithm::kDirectTwoShot) return options.channel_segment_bytes;
  // Two ranks wait for each other at the end of each block, and no third has anything for them meanwhile: they fare
  // best with large ones. What is rounded is half as large on its way.
  return options.channel_segment_bytes * (n_ranks == 2 ? 2 : 1) * (rounding.is_on() ? 2 : 1);
}

// REQUIRES: both are possible, `later` stands further down in the table.
bool Policy::is_better(const PolicyRow& later, const PolicyRow& earlier, std::size_t n_bytes) const {
  if (!options.algorithm.empty()) {
    if (earlier.name.ends_with(options.algorithm)) return false;
    if (later.name.ends_with(options.algorithm)) return true;
  }
  if (options.one_shot_bytes && is_one_shot(*earlier.algorithm)) return n_bytes > *options.one_shot_bytes;
  if (options.one_shot_bytes && later.algorithm == Algorithm::kDirectDoubling) return false;  // what is above is shared
  return !costs.is_no_slower(usual(earlier).way(), usual(later).way(), n_bytes);
}

// Of the rows of a collective, those that need the most of what there is count.
Memory Policy::needed(Collective collective) const {
  Memory most = Memory::kChannels;
  for (const PolicyRow& row : kPolicy) {
    if (row.collective == collective && row.needs <= available) most = std::max(most, row.needs);
  }
  return most;
}

Pick Policy::best(Collective collective, std::size_t n_bytes) const {
  const Memory needs = needed(collective);
  const auto is_candidate = [&](const PolicyRow& row) { return is_possible(row, collective, needs, n_bytes); };
  const auto* best = std::find_if(kPolicy.begin(), kPolicy.end(), is_candidate);
  for (const auto* row = best + 1; row < kPolicy.end(); ++row) {
    if (is_candidate(*row) && is_better(*row, *best, n_bytes)) best = row;
  }
  return usual(*best);
}

std::vector<Pick> Policy::all(Collective collective, std::size_t n_bytes) const {
  const Memory needs = needed(collective);
  std::vector<Pick> found;
  for (const PolicyRow& row : kPolicy) {
    if (!is_possible(row, collective, needs, n_bytes)) continue;
    found.push_back(usual(row));
    if (options.segment_bytes) continue;
    for (const std::size_t part : kParts) {
      const std::size_t shorter = usual_segment(row) / part / kLeastSegment * kLeastSegment;
      if (shorter >= kLeastSegment && shorter < middle_of_class(n_bytes)) found.push_back({&row, shorter});
    }
  }
  return found;
}

}  // namespace ciranda
