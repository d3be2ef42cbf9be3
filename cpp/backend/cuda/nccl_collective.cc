#include "backend/cuda/nccl_collective.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
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

// Of the events that it comes after: those of a call are of one graph, or of none.
std::shared_ptr<CapturedGraph> graph_of(const Plan& plan) {
  return plan.after.empty() ? nullptr : static_cast<const Event&>(*plan.after.front()).graph();
}

}  // namespace

NcclCollective::NcclCollective(NcclGroup& group, const Plan& plan, std::size_t most_bytes)
    : group_(group),
      plan_(plan),
      graph_(graph_of(plan)),
      most_bytes_(most_bytes),
      n_bytes_(std::min(plan.n_bytes, most_bytes)) {}

Progress NcclCollective::step() {
  if (group_.stream.is_under_way()) {
    status_ = group_.communicator()->status();
    return Progress::kStuck;
  }
  if (work_ != nullptr || lacks_room_) status_ = group_.stream.status();
  if (!status_.ok()) return Progress::kStuck;
  if (work_ != nullptr) return Progress::kDone;
  lacks_room_ = false;
  Steps steps = all_steps();
  if (lacks_room_) {
    group_.stream.call([graph = graph_, n_bytes = group_.room_bytes] { return graph->make_room(n_bytes); });
  } else {
    graph_ == nullptr ? queue(std::move(steps)) : record(std::move(steps));
  }
  return Progress::kMoved;
}

// An address that is nobody's stands for that of a room which is not made yet.
std::byte* NcclCollective::room() const {
  if (graph_ == nullptr) return group_.room().address();
  std::byte* const made = graph_->room(group_.room_bytes);
  if (made != nullptr) return made;
  lacks_room_ = true;
  return reinterpret_cast<std::byte*>(NcclRoom::kAlignment);
}

std::string NcclCollective::awaited_device() const { return group_.stream.is_under_way() ? where() : ""; }

// Of all chunks.
NcclCollective::Steps NcclCollective::all_steps() {
  Steps all;
  offset_ = 0;
  n_bytes_ = std::min(plan_.n_bytes, most_bytes_);
  while (true) {
    for (Steps& steps : std::array{moves(), results()}) std::ranges::move(steps, std::back_inserter(all));
    offset_ += n_bytes_;
    if (offset_ == plan_.n_bytes) return all;
    n_bytes_ = std::min(plan_.n_bytes - offset_, most_bytes_);
  }
}

Status NcclCollective::fill(const Zeros& zeros, const PeerStream::Tasks& tasks) {
  const GpuContext& gpu = tasks.gpu.context;
  const auto to = reinterpret_cast<CUdeviceptr>(zeros.to);
  return gpu.check(gpu.driver.cuMemsetD8Async(to, 0, zeros.n_bytes, tasks.stream), "cuMemsetD8Async");
}

// The first work comes after what the caller's queues had been given; the rest is behind it in one stream.
PeerStream::Work NcclCollective::queueing(Steps steps) const {
  return
      [after = plan_.after, steps = std::move(steps), communicator = group_.communicator()](PeerStream::Tasks& tasks) {
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
      };
}

void NcclCollective::queue(Steps steps) {
  const std::shared_ptr<NcclCommunicator>& communicator = group_.communicator();
  const std::shared_ptr<NcclStream>& stream = group_.stream_of_world();
  const auto on_thread = [&gpu = group_.stream.gpu()](std::function<void()> call) {
    gpu.thread().run(std::move(call));
  };
  work_ = std::make_shared<DeviceWork>(where(), DeviceWork::Before{plan_.after, on_thread},
                                       [communicator] { return communicator->status(); });
  const auto await = [stream](std::shared_ptr<const Event> event, std::function<void(Status)> passed) {
    stream->when_passed(std::move(event), std::move(passed));
  };
  group_.stream.queue({stream->handle(), await}, plan_.holds, queueing(std::move(steps)), work_,
                      [communicator] { return communicator->look(); });
}

// The communicator lives as long as the graph: NCCL does not let go of one of which a graph has work.
void NcclCollective::record(Steps steps) {
  work_ = std::make_shared<DeviceWork>(where(), DeviceWork::Before(), [] { return Status::ok_status(); });
  group_.stream.record(
      graph_,
      [graph = graph_, shared = group_.shared, work = queueing(std::move(steps))](PeerStream::Tasks& tasks) {
        graph->keep(shared);
        graph->keep(shared->communicator->in_graph());
        return work(tasks);
      },
      work_);
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
