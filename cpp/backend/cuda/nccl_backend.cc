#include "backend/cuda/nccl_backend.hpp"

#include <string>
#include <utility>

#include "backend/cuda/cuda_device.hpp"
#include "backend/cuda/nccl_allreduce.hpp"
#include "backend/cuda/nccl_settling.hpp"

namespace ciranda::cuda {
namespace {

// A chunk, in slots of the arena: 32 MiB by default. The memory is for what must be packed.
constexpr std::size_t kChunkSlots = 64;

class NcclBackend final : public Backend {
 public:
  NcclBackend(Mesh& mesh, const Config& config, FindDevice* device)
      : mesh_(mesh),
        room_bytes_(kChunkSlots * static_cast<std::size_t>(config.slot_bytes)),
        nccl_(config.nccl),
        device_(device) {}
  ~NcclBackend() override {
    if (group_ == nullptr) return;
    end();
    group_->stream.leave();
  }

  bool is_settled() const override { return group_ != nullptr && group_->usable.has_value(); }
  Status usable() const override { return *group_->usable; }

  std::unique_ptr<RunningCollective> settle(const Place& place) override {
    Gpu* const gpu = gpu_at(*device_().value(), place).value();
    group_ = std::make_shared<NcclGroup>(*gpu, mesh_, room_bytes_);
    return std::make_unique<NcclSettling>(group_, place, nccl_);
  }

  Started start(const Plan& plan) override {
    if (plan.n_bytes == 0) return {};
    return {std::make_unique<NcclAllreduce>(*group_, plan), "nccl"};
  }

  // Nothing of NCCL's is under way on a GPU that is idle, and the others may need its communicator a moment longer.
  void abort() override {
    if (group_ == nullptr || !group_->stream.is_under_way()) return;
    group_->stream.abort();
    NcclCommunicator::abort_all(group_->stream.gpu());
  }

 private:
  // Memory that work under way may still use is never used again.
  void end() {
    if (group_->stream.is_under_way() || group_->stream.was_aborted()) return;
    if (group_->communicator != nullptr) group_->communicator->end();
    if (group_->room != nullptr) group_->room->give_back();
  }

  Mesh& mesh_;
  const std::size_t room_bytes_;
  const std::string nccl_;
  FindDevice* const device_;
  std::shared_ptr<NcclGroup> group_;
};

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(Mesh& mesh, const Config& config, FindDevice* device) {
  return std::make_unique<NcclBackend>(mesh, config, device);
}

}  // namespace ciranda::cuda
