#include "backend/cuda/captured_graph.hpp"

#include <utility>

#include "backend/cuda/current_context.hpp"
#include "backend/cuda/spare_stream.hpp"

namespace ciranda::cuda {
namespace {

struct KnownGraphs {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<CapturedGraph>> all;  // by capture
};

KnownGraphs& known_graphs() {
  static KnownGraphs& known = *new KnownGraphs;
  return known;
}

// What the graph has a reference to. The function that drops it must not call the driver, so the GPU's thread does.
struct Reference {
  Gpu& gpu;
  std::shared_ptr<CapturedGraph> graph;

  static void drop(void* reference) {
    const std::unique_ptr<Reference> dropped(static_cast<Reference*>(reference));
    dropped->gpu.thread().run([graph = std::move(dropped->graph)]() mutable { graph = nullptr; });
  }
};

Status retain(Gpu& gpu, CUgraph handle, const std::shared_ptr<CapturedGraph>& graph) {
  const GpuContext& context = gpu.parts().context;
  auto reference = std::make_unique<Reference>(Reference{gpu, graph});
  CUuserObject object = nullptr;
  const CUresult made =
      context.driver.cuUserObjectCreate(&object, reference.get(), Reference::drop, 1, kUserObjectNoDestructorSync);
  if (Status status = context.check(made, "cuUserObjectCreate"); !status.ok()) return status;
  static_cast<void>(reference.release());
  const CUresult retained = context.driver.cuGraphRetainUserObject(handle, object, 1, kGraphUserObjectMove);
  if (retained != CUresult::kSuccess) context.driver.cuUserObjectRelease(object, 1);
  return context.check(retained, "cuGraphRetainUserObject");
}

}  // namespace

Result<DeviceEventPtr> CapturedGraph::record(Gpu& gpu, CUstream stream) {
  const GpuContext& context = gpu.parts().context;
  const CurrentContext current(context.driver, context.context);
  if (Status status = current.status(); !status.ok()) return status;
  const Result<std::shared_ptr<CapturedGraph>> graph = of(gpu, stream);
  if (!graph.ok()) return graph.status();
  Result<std::shared_ptr<const Event>> event =
      gpu.parts().events.record(stream, {graph.value()->capture_, graph.value()});
  return event.ok() ? Result<DeviceEventPtr>(std::move(event).value()) : event.status();
}

Result<std::shared_ptr<const Event>> CapturedGraph::record(const std::shared_ptr<CapturedGraph>& graph) {
  return graph->gpu_.parts().events.record(graph->stream_, {graph->capture_, graph});
}

void CapturedGraph::keep_results(Device::Put made, const Device::Queued& queued) {
  for (const std::shared_ptr<std::byte>& each : made.allocated) keep(each);
  const auto allocated = std::static_pointer_cast<const Event>(std::exchange(made.event, nullptr));
  gpu_.thread().when_passed(allocated, [made = std::move(made), queued](const Status& passed) {
    queued(passed.ok() ? Result<Device::Put>(made) : passed);
  });
}

// That of the capture that the stream is in. REQUIRES: the GPU's context is the thread's.
Result<std::shared_ptr<CapturedGraph>> CapturedGraph::of(Gpu& gpu, CUstream stream) {
  const GpuContext& context = gpu.parts().context;
  auto state = CUstreamCaptureStatus::kNone;
  std::uint64_t id = 0;
  CUgraph handle = nullptr;
  const CUresult told = context.driver.cuStreamGetCaptureInfo(stream, &state, &id, &handle, nullptr, nullptr);
  if (Status status = context.check(told, "cuStreamGetCaptureInfo"); !status.ok()) return status;
  if (state != CUstreamCaptureStatus::kActive) return Status::internal("the capture of its stream has ended");
  const std::lock_guard lock(known_graphs().mutex);
  std::erase_if(known_graphs().all, [](const auto& each) { return each.second.expired(); });
  if (const auto found = known_graphs().all.find(id); found != known_graphs().all.end()) {
    if (auto graph = found->second.lock(); graph != nullptr) return graph;
  }
  const Result<CUstream> own = take_stream(gpu);
  if (!own.ok()) return own.status();
  const auto graph = std::make_shared<CapturedGraph>(gpu, id, own.value());
  if (Status status = retain(gpu, handle, graph); !status.ok()) return status;
  known_graphs().all[id] = graph;
  return graph;
}

CapturedGraph::~CapturedGraph() {
  for (const auto& [n_bytes, room] : rooms_) room->give_back();
  give_back_stream(gpu_, stream_);
}

std::byte* CapturedGraph::room(std::size_t n_bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = rooms_.find(n_bytes);
  return found == rooms_.end() ? nullptr : found->second->address();
}

Status CapturedGraph::make_room(std::size_t n_bytes) {
  const Result<NcclRoom*> made = NcclRoom::take(gpu_, n_bytes);
  if (!made.ok()) return made.status();
  const std::lock_guard lock(mutex_);
  rooms_[n_bytes] = made.value();
  return Status::ok_status();
}

}  // namespace ciranda::cuda
