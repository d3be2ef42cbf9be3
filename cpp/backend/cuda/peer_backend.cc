#include "backend/cuda/peer_backend.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "backend/cuda/cuda_device.hpp"
#include "backend/cuda/peer_alone.hpp"
#include "backend/cuda/peer_broadcast.hpp"
#include "backend/cuda/peer_exchange.hpp"
#include "backend/cuda/peer_reducescatter.hpp"
#include "backend/cuda/peer_reduction.hpp"
#include "backend/cuda/peer_scan.hpp"
#include "backend/cuda/peer_settling.hpp"

namespace ciranda::cuda {
namespace {

// The size of a slot on a GPU, in slots of the arena. It is larger, since a launch takes longer than the start of a
// copy on the CPU, and a GPU is faster.
constexpr std::size_t kArenaSlots = 8;

template <typename Peer>
std::unique_ptr<RunningCollective> make(PeerGroup& group, const Plan& plan) {
  return std::make_unique<Peer>(group, plan);
}

struct Row {
  Collective collective;
  std::unique_ptr<RunningCollective> (*make)(PeerGroup& group, const Plan& plan);
};

// Those with tensors; a transfer's plan is a broadcast.
constexpr std::array kRows{
    Row{Collective::kAllreduce, make<PeerReduction>}, Row{Collective::kAllgather, make<PeerExchange>},
    Row{Collective::kBroadcast, make<PeerBroadcast>}, Row{Collective::kReducescatter, make<PeerReducescatter>},
    Row{Collective::kAlltoall, make<PeerExchange>},   Row{Collective::kReduce, make<PeerReduction>},
    Row{Collective::kGather, make<PeerExchange>},     Row{Collective::kScatter, make<PeerExchange>},
    Row{Collective::kScan, make<PeerScan>},
};
static_assert(std::ranges::all_of(kCollectives, [](const CollectiveInfo& one) {
  return !one.has_tensors || one.collective == Collective::kTransfer ||
         std::ranges::find(kRows, one.collective, &Row::collective) != kRows.end();
}));

class PeerBackend final : public Backend {
 public:
  PeerBackend(Mesh& mesh, std::size_t slot_bytes, FindDevice* device)
      : mesh_(mesh), slot_bytes_(slot_bytes), device_(device) {}
  ~PeerBackend() override {
    end();
    if (group_ != nullptr) group_->leave();
    for (auto& [number, stream] : alone_) stream.leave();
  }

  void share(ArenaSession* session) override { session_ = session; }
  Status usable() const override {
    if (is_alone()) return Status::ok_status();
    return failed_.has_value() ? *failed_ : *group_->usable;
  }

  std::string advice() const override { return group_ == nullptr ? "" : group_->advice; }

  // Either all members have shared memory or none has.
  std::unique_ptr<RunningCollective> settle(const Place& place, Way /*way*/) override {
    if (is_alone()) return nullptr;
    if (session_ == nullptr) {
      failed_ = mesh_.rank() == 0 ? Status::internal("they share no memory on the host") : Status::aborted("as rank 0");
      return nullptr;
    }
    group_ = std::make_shared<PeerGroup>(gpu_of(place), mesh_, *session_);
    return std::make_unique<PeerSettling>(group_, slot_bytes_);
  }

  Started start(const Plan& plan) override {
    if (plan.n_bytes == 0) return {};
    if (is_alone()) {
      PeerStream& stream = alone_.try_emplace(plan.place.index, gpu_of(plan.place), mesh_).first->second;
      return {std::make_unique<PeerAlone>(stream, plan), "peer"};
    }
    const auto row = std::ranges::find(kRows, plan.collective, &Row::collective);
    return {row->make(*group_, plan), "peer"};
  }

  void abort() override {
    if (group_ != nullptr) group_->abort();
    for (auto& [number, stream] : alone_) stream.abort();
    was_aborted_ = true;
  }

 private:
  bool is_alone() const { return mesh_.size() == 1; }
  // It can be found, since this rank's tensors lie on it.
  Gpu& gpu_of(const Place& place) const { return *gpu_at(*device_().value(), place).value(); }

  // Memory that another rank may still read, or that work under way may still use, is never used again.
  void end() {
    if (group_ == nullptr || group_->own == nullptr || was_aborted_ || group_->is_under_way()) return;
    if (group_->last && !session_->have_all(ArenaSession::Counter::kConsumed, *group_->last)) return;
    group_->stream.gpu().thread().run([gpu = &group_->stream.gpu(), own = group_->own, opened = group_->opened] {
      for (const CUdeviceptr memory : opened) gpu->parts().context.driver.cuIpcCloseMemHandle(memory);
      own->give_back();
    });
  }

  Mesh& mesh_;
  const std::size_t slot_bytes_;
  FindDevice* const device_;
  ArenaSession* session_ = nullptr;
  std::shared_ptr<PeerGroup> group_;
  std::map<int, PeerStream> alone_;  // by number of the GPU, if there is but one rank
  std::optional<Status> failed_;     // why there is no group
  bool was_aborted_ = false;
};

}  // namespace

std::unique_ptr<Backend> make_peer_backend(Mesh& mesh, const Config& config, FindDevice* device) {
  return std::make_unique<PeerBackend>(mesh, kArenaSlots * static_cast<std::size_t>(config.slot_bytes), device);
}

}  // namespace ciranda::cuda
