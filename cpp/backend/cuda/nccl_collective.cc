#include "backend/cuda/nccl_collective.hpp"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

namespace ciranda::cuda {
namespace {

// As kernels and NCCL read and write it fastest.
bool is_aligned(const std::byte* memory) { return reinterpret_cast<std::uintptr_t>(memory) % 16 == 0; }

template <typename Byte>
Byte* whole_of(const PieceList<Byte>& pieces, std::size_t offset, std::size_t n_bytes) {
  if (offset + n_bytes > pieces.n_bytes()) return nullptr;
  Byte* const found = pieces.contiguous(offset, n_bytes).data();
  return found != nullptr && is_aligned(found) ? found : nullptr;
}

}  // namespace

NcclCollective::NcclCollective(NcclGroup& group, const Plan& plan, std::size_t most_bytes)
    : group_(group), plan_(plan), most_bytes_(most_bytes), n_bytes_(std::min(plan.n_bytes, most_bytes)) {}

Progress NcclCollective::step() {
  switch (phase_) {
    case Phase::kBegin:
      run(moves());
      phase_ = Phase::kMoving;
      return Progress::kMoved;
    case Phase::kMoving: {
      if (!has_ended()) return Progress::kStuck;
      const Steps rest = results();
      if (rest.empty()) return end_chunk();
      run(rest);
      phase_ = Phase::kFinishing;
      return Progress::kMoved;
    }
    case Phase::kFinishing: break;
  }
  return has_ended() ? end_chunk() : Progress::kStuck;
}

std::string NcclCollective::awaited_device() const {
  return group_.stream.is_under_way() ? "on " + group_.stream.name() + ", for NCCL" : "";
}

// Whether the work on the GPU has ended well.
bool NcclCollective::has_ended() {
  if (!status_.ok()) return false;
  if (group_.stream.is_under_way()) {
    status_ = group_.communicator()->status();
    return false;
  }
  status_ = group_.stream.status();
  if (status_.ok()) status_ = group_.communicator()->look();
  return status_.ok();
}

Status NcclCollective::fill(const Zeros& zeros, const PeerStream::Tasks& tasks) {
  const GpuContext& gpu = tasks.gpu.context;
  const auto to = reinterpret_cast<CUdeviceptr>(zeros.to);
  return gpu.check(gpu.driver.cuMemsetD8Async(to, 0, zeros.n_bytes, tasks.stream), "cuMemsetD8Async");
}

// The plan's first work comes after what the caller's queues had been given; the rest is behind it in one stream.
void NcclCollective::run(const Steps& steps) {
  const bool is_first = offset_ == 0 && phase_ == Phase::kBegin;
  const std::vector<DeviceEventPtr> after = is_first ? plan_.after : std::vector<DeviceEventPtr>{};
  group_.stream.run(group_.room().stream(), plan_.holds,
                    [after, steps, communicator = group_.communicator()](PeerStream::Tasks& tasks) {
                      for (const DeviceEventPtr& event : after) {
                        if (Status status = tasks.wait_for(*event); !status.ok()) return status;
                      }
                      const auto queue = [&]<typename Work>(const Work& work) {
                        if constexpr (std::is_same_v<Work, Copies>) {
                          return tasks.copy(work);
                        } else if constexpr (std::is_same_v<Work, Zeros>) {
                          return fill(work, tasks);
                        } else if constexpr (std::is_same_v<Work, ReduceLaunch>) {
                          return tasks.reduce(work);
                        } else {
                          return work.empty() ? Status::ok_status() : communicator->run(work, tasks.stream);
                        }
                      };
                      for (const Step& step : steps) {
                        if (Status status = std::visit(queue, step); !status.ok()) return status;
                      }
                      return Status::ok_status();
                    });
}

Progress NcclCollective::end_chunk() {
  offset_ += n_bytes_;
  if (offset_ == plan_.n_bytes) return Progress::kDone;
  n_bytes_ = std::min(plan_.n_bytes - offset_, most_bytes_);
  phase_ = Phase::kBegin;
  return Progress::kMoved;
}

std::size_t NcclCollective::n_bytes_of(std::size_t n_bytes) const {
  return std::min(n_bytes_, n_bytes - std::min(n_bytes, offset_));
}

std::size_t NcclCollective::share_of_room(const NcclGroup& group, std::size_t n) {
  return group.room_bytes / n / NcclRoom::kAlignment * NcclRoom::kAlignment;
}

const std::byte* NcclCollective::whole(const InputPieces& pieces, std::size_t offset, std::size_t n_bytes) {
  return whole_of(pieces, offset, n_bytes);
}

std::byte* NcclCollective::whole(const OutputPieces& pieces, std::size_t offset, std::size_t n_bytes) {
  return whole_of(pieces, offset, n_bytes);
}

}  // namespace ciranda::cuda
