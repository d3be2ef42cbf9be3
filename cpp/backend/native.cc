#include "backend/native.hpp"

#include <array>
#include <limits>

#include "collective/direct_allgather.hpp"
#include "collective/direct_allreduce.hpp"
#include "collective/direct_broadcast.hpp"
#include "collective/local.hpp"
#include "collective/shm_allgather.hpp"
#include "collective/shm_allreduce.hpp"
#include "collective/shm_broadcast.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kAnySize = std::numeric_limits<std::size_t>::max();

enum class SizeLimit : std::uint8_t { kOneShot, kNone };

struct Launch {
  Mesh& mesh;
  ArenaSession* session;
  const NativeOptions& options;
  const Plan& plan;
  kernels::Reduction reduction;
};
using Start = std::unique_ptr<RunningCollective> (*)(const Launch&);

struct PolicyRow {
  Collective collective;
  bool in_arena;    // needs memory that all ranks share
  SizeLimit limit;  // the first row that fits is taken
  std::string_view name;
  Start start;
};

constexpr std::array kPolicy{
    PolicyRow{Collective::kAllreduce, true, SizeLimit::kOneShot, "shm one-shot",
              [](const Launch& l) { return shm_allreduce_one_shot(*l.session, l.plan, l.reduction); }},
    PolicyRow{Collective::kAllreduce, true, SizeLimit::kNone, "shm two-shot",
              [](const Launch& l) { return shm_allreduce_two_shot(*l.session, l.plan, l.reduction); }},
    PolicyRow{Collective::kAllreduce, false, SizeLimit::kOneShot, "direct one-shot",
              [](const Launch& l) { return direct_allreduce_one_shot(l.mesh, l.plan, l.reduction); }},
    PolicyRow{Collective::kAllreduce, false, SizeLimit::kNone, "direct two-shot",
              [](const Launch& l) {
                return direct_allreduce_two_shot(l.mesh, l.plan, l.reduction, l.options.segment_bytes);
              }},
    PolicyRow{Collective::kBroadcast, true, SizeLimit::kNone, "shm broadcast",
              [](const Launch& l) { return shm_broadcast(*l.session, l.plan); }},
    PolicyRow{Collective::kBroadcast, false, SizeLimit::kNone, "direct broadcast",
              [](const Launch& l) { return direct_broadcast(l.mesh, l.plan); }},
    PolicyRow{Collective::kAllgather, true, SizeLimit::kNone, "shm allgather",
              [](const Launch& l) { return shm_allgather(*l.session, l.plan); }},
    PolicyRow{Collective::kAllgather, false, SizeLimit::kNone, "direct allgather",
              [](const Launch& l) { return direct_allgather(l.mesh, l.plan); }},
};

const PolicyRow& choose(Collective collective, bool has_arena, std::size_t n_bytes, std::size_t one_shot_bytes) {
  for (const PolicyRow& row : kPolicy) {
    const std::size_t at_most = row.limit == SizeLimit::kOneShot ? one_shot_bytes : kAnySize;
    if (row.collective == collective && row.in_arena == has_arena && n_bytes <= at_most) return row;
  }
  return kPolicy.back();  // not reached: each collective has a row without a limit for both
}

bool is_empty(const Plan& plan) {
  if (plan.collective != Collective::kAllgather) return plan.output.n_bytes() == 0;
  for (const OutputPieces& output : plan.output_by_rank) {
    if (output.n_bytes() > 0) return false;
  }
  return true;
}

}  // namespace

NativeBackend::NativeBackend(Mesh& mesh, NativeOptions options) : mesh_(mesh), options_(options) {
  if (mesh.arena() == nullptr) return;
  session_.emplace(*mesh.arena());
  options_.one_shot_bytes = std::min(options_.one_shot_bytes, session_->slot_bytes());
}

std::unique_ptr<RunningCollective> NativeBackend::start(const Plan& plan) {
  if (is_empty(plan)) return nullptr;
  const kernels::Reduction reduction{plan.dtype, plan.op, plan.prescale, plan.postscale, plan.n_average};
  if (mesh_.size() == 1) {
    if (plan.collective == Collective::kAllreduce) {
      local_allreduce(plan, reduction);
    } else {
      local_copy(plan);
    }
    return nullptr;
  }
  const PolicyRow& row = choose(plan.collective, session_.has_value(), plan.input.n_bytes(), options_.one_shot_bytes);
  return row.start({mesh_, session_ ? &*session_ : nullptr, options_, plan, reduction});
}

std::string_view NativeBackend::algorithm_name(Collective collective, std::size_t n_bytes) const {
  return choose(collective, session_.has_value(), n_bytes, options_.one_shot_bytes).name;
}

}  // namespace ciranda
