#include "backend/cuda/nccl_backend.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "backend/cuda/cuda_device.hpp"
#include "backend/cuda/nccl_broadcast.hpp"
#include "backend/cuda/nccl_exchange.hpp"
#include "backend/cuda/nccl_ordered_reduction.hpp"
#include "backend/cuda/nccl_reduction.hpp"
#include "backend/cuda/nccl_settling.hpp"
#include "backend/cuda/peer_backend.hpp"
#include "call/nccl_collectives.hpp"

namespace ciranda::cuda {
namespace {

// A chunk, in slots of the arena: 32 MiB by default. The memory is for what must be packed.
constexpr std::size_t kChunkSlots = 64;
// That a communicator may take, and less where stalls end the job sooner.
constexpr double kMostSecondsToMake = 120;

template <typename ByNccl>
std::unique_ptr<RunningCollective> by_nccl(NcclGroup& group, const Plan& plan) {
  return std::make_unique<ByNccl>(group, plan);
}

struct NcclRow {
  Collective collective;
  std::unique_ptr<RunningCollective> (*make)(NcclGroup& group, const Plan& plan);
};

constexpr std::array kNcclRows{NcclRow{Collective::kAllreduce, by_nccl<NcclReduction>},
                               NcclRow{Collective::kAllgather, by_nccl<NcclExchange>},
                               NcclRow{Collective::kBroadcast, by_nccl<NcclBroadcast>},
                               NcclRow{Collective::kReducescatter, by_nccl<NcclReduction>},
                               NcclRow{Collective::kAlltoall, by_nccl<NcclExchange>},
                               NcclRow{Collective::kReduce, by_nccl<NcclReduction>},
                               NcclRow{Collective::kGather, by_nccl<NcclExchange>},
                               NcclRow{Collective::kScatter, by_nccl<NcclExchange>}};
static_assert(std::ranges::equal(kNcclRows, kNcclCollectives, {}, &NcclRow::collective));

NcclSettling::Options options_of(const Config& config) {
  const bool is_protected = config.wire == "authenticate" || config.wire == "encrypt";
  const double until_stall = config.stall_shutdown_seconds > 0 ? config.stall_shutdown_seconds / 2 : kMostSecondsToMake;
  return {.nccl = config.nccl,
          .may_leave_the_host = !is_protected || config.nccl_between_hosts,
          .most = std::chrono::duration<double>(std::min(until_stall, kMostSecondsToMake))};
}

// Settles by NCCL, and if that cannot be, by peer.
class NcclThenPeer final : public RunningCollective {
 public:
  using Settle = std::function<std::unique_ptr<RunningCollective>()>;
  // `otherwise` gives what is to be done when the first has ended badly, or null.
  NcclThenPeer(std::unique_ptr<RunningCollective> first, Settle otherwise)
      : running_(std::move(first)), otherwise_(std::move(otherwise)) {}

  Progress step() override {
    const Progress progress = running_->step();
    if (progress != Progress::kDone || otherwise_ == nullptr) return progress;
    auto next = std::exchange(otherwise_, nullptr)();
    if (next == nullptr) return Progress::kDone;
    running_ = std::move(next);
    return Progress::kMoved;
  }
  std::vector<int> awaited() const override { return running_->awaited(); }
  Status status() const override { return running_->status(); }
  std::string awaited_device() const override { return running_->awaited_device(); }

 private:
  std::unique_ptr<RunningCollective> running_;
  Settle otherwise_;
};

class NcclBackend final : public Backend {
 public:
  NcclBackend(Mesh& mesh, const Config& config, FindDevice* device)
      : mesh_(mesh),
        room_bytes_(kChunkSlots * static_cast<std::size_t>(config.slot_bytes)),
        options_(options_of(config)),
        adds_(config.gpu_reduce == "nccl"),
        device_(device),
        peer_(make_peer_backend(mesh, config, device)) {}
  ~NcclBackend() override { leave(); }

  void share(ArenaSession* session) override { peer_->share(session); }

  std::unique_ptr<RunningCollective> settle(const Place& place, Way way) override {
    if (way != Way::kNccl) return peer_->settle(place, way);
    Gpu* const gpu = gpu_at(*device_().value(), place).value();
    group_ = std::make_shared<NcclGroup>(*gpu, mesh_, room_bytes_);
    return std::make_unique<NcclThenPeer>(std::make_unique<NcclSettling>(group_, place, options_), [this, place] {
      if (group_->usable->ok()) return std::unique_ptr<RunningCollective>();
      why_not_ = *group_->usable;
      leave();
      return peer_->settle(place, Way::kPeer);
    });
  }

  // If neither can be used, the rank that knows why NCCL cannot has to say so.
  Status usable() const override {
    if (group_ != nullptr) return Status::ok_status();
    const Status by_peer = peer_->usable();
    return by_peer.ok() || why_not_.ok() ? by_peer : Status(why_not_.kind(), why_not_by_nccl());
  }

  Status detour() const override {
    if (why_not_.ok() || !peer_->usable().ok()) return Status::ok_status();
    return {why_not_.kind(), "tensors on GPUs go by peer, although CIRANDA_GPU_WAY is nccl: " + why_not_by_nccl()};
  }

  Started start(const Plan& plan) override {
    if (group_ == nullptr) return peer_->start(plan);
    if (plan.n_bytes == 0) return {};
    if (is_in_rank_order(plan)) return {std::make_unique<NcclOrderedReduction>(*group_, plan), "nccl-ciranda"};
    const auto row = std::ranges::find(kNcclRows, plan.collective, &NcclRow::collective);
    return {row->make(*group_, plan), "nccl"};
  }

  // Where nothing of this lane is under way, the others may need its communicator a moment longer.
  void abort() override {
    peer_->abort();
    if (group_ == nullptr || (!may_be_used() && !is_in_graphs())) return;
    group_->stream.abort();
    NcclCommunicator::abort_all(group_->stream.gpu());
  }

  bool is_in_graphs() const override {
    return group_ != nullptr && group_->shared != nullptr && group_->shared->communicator != nullptr &&
           group_->communicator()->is_in_graph();
  }

 private:
  bool is_in_rank_order(const Plan& plan) const {
    const bool has_factors = plan.prescale != 1.0 || plan.postscale != 1.0;
    return info(plan.collective).is_reduction && !(adds_ && is_reduced_by_nccl(plan.dtype, plan.op, has_factors));
  }
  std::string why_not_by_nccl() const { return "NCCL cannot be used: " + why_not_.message(); }

  // REQUIRES: there is a group.
  bool may_be_used() const { return group_->stream.is_under_way() || group_->stream.has_unended(); }

  // Memory that work under way may still use is never used again.
  void leave() {
    if (group_ == nullptr) return;
    if ((may_be_used() || group_->stream.was_aborted()) && group_->shared != nullptr) group_->shared->leave_alone();
    group_->stream.leave();
    group_ = nullptr;
  }

  Mesh& mesh_;
  const std::size_t room_bytes_;
  const NcclSettling::Options options_;
  const bool adds_;  // NCCL itself, what it can
  FindDevice* const device_;
  const std::unique_ptr<Backend> peer_;  // for calls that do not go by NCCL
  std::shared_ptr<NcclGroup> group_;     // null: it is not used
  Status why_not_;                       // ok: it is used, or was not asked for
};

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(Mesh& mesh, const Config& config, FindDevice* device) {
  return std::make_unique<NcclBackend>(mesh, config, device);
}

}  // namespace ciranda::cuda
