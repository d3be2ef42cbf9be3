#include "backend/cuda/peer_stream.hpp"

#include <cstring>
#include <tuple>
#include <utility>

#include "backend/cuda/kernels/launches.hpp"

namespace ciranda::cuda {

void PeerStream::leave() {
  abort();
  const std::lock_guard lock(state_->mutex);
  state_->mesh = nullptr;
}

void PeerStream::State::end(Status outcome) {
  status = std::move(outcome);
  is_under_way.store(false, std::memory_order_release);
  wake();
}

void PeerStream::State::wake() {
  const std::lock_guard lock(mutex);
  if (mesh != nullptr) mesh->kick();
}

Status PeerStream::Tasks::copy(std::vector<Piece> pieces) {
  if (pieces.empty()) return Status::ok_status();
  const std::size_t n_bytes = pieces.size() * sizeof(Piece);
  const std::shared_ptr<std::byte> described = gpu.pinned.allocate(n_bytes);
  if (described == nullptr) return copy_each(pieces);
  const std::uint64_t n_chunks = number_chunks(pieces, kChunkBytes);
  std::memcpy(described.get(), pieces.data(), n_bytes);
  kept.push_back(described);
  return gpu.kernels->copy({reinterpret_cast<const Piece*>(described.get()), pieces.size(), n_chunks}, stream);
}

Status PeerStream::Tasks::copy_each(std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) {
    const auto to = reinterpret_cast<CUdeviceptr>(piece.to);
    const CUresult copied =
        gpu.context.driver.cuMemcpyAsync(to, reinterpret_cast<CUdeviceptr>(piece.from), piece.n_bytes, stream);
    if (Status status = gpu.context.check(copied, "cuMemcpyAsync"); !status.ok()) return status;
  }
  return Status::ok_status();
}

Status PeerStream::Tasks::wait_for(const DeviceEvent& event) {
  const CUevent handle = static_cast<const Event&>(event).handle();
  return gpu.context.check(gpu.context.driver.cuStreamWaitEvent(stream, handle, 0), "cuStreamWaitEvent");
}

namespace {

// It is unknown when the work that was queued ends, so what it uses is never freed.
void keep_for_ever(auto... used) { static_cast<void>(new auto(std::make_tuple(std::move(used)...))); }

}  // namespace

void PeerStream::run(CUstream stream, std::vector<std::shared_ptr<void>> holds, Work work) {
  run_in([stream](Gpu&) { return Result<CUstream>(stream); }, std::move(holds), std::move(work));
}

void PeerStream::run_for(void* queue, std::vector<std::shared_ptr<void>> holds, Work work) {
  run_in([queue](Gpu& gpu) { return gpu.stream_of_results(queue); }, std::move(holds), std::move(work));
}

void PeerStream::run_in(StreamOf stream_of, std::vector<std::shared_ptr<void>> holds, Work work) {
  state_->is_under_way.store(true);
  gpu_.thread().run([&gpu = gpu_, state = state_, stream_of = std::move(stream_of), holds = std::move(holds),
                     work = std::move(work)]() mutable {
    if (state->is_over.load()) return;
    const Result<CUstream> stream = stream_of(gpu);
    if (!stream.ok()) return state->end(stream.status());
    Tasks tasks{gpu.parts(), stream.value(), {}};
    Status status = work(tasks);
    if (status.ok()) {
      Result<std::shared_ptr<const Event>> event = tasks.gpu.events.record(stream.value());
      if (event.ok()) {
        gpu.thread().when_passed(std::move(event).value(),
                                 [state, holds = std::move(holds), kept = std::move(tasks.kept)](Status passed) {
                                   state->end(std::move(passed));
                                 });
        return;
      }
      status = event.status();
    }
    keep_for_ever(std::move(holds), std::move(tasks.kept));
    state->end(std::move(status));
  });
}

void PeerStream::queue(Queue to, std::vector<std::shared_ptr<void>> holds, Work work,
                       std::shared_ptr<DeviceWork> unended, std::function<Status()> check) {
  state_->is_under_way.store(true);
  gpu_.thread().run([&gpu = gpu_, state = state_, to = std::move(to), holds = std::move(holds), work = std::move(work),
                     unended = std::move(unended), check = std::move(check)]() mutable {
    if (state->is_over.load()) return;
    Tasks tasks{gpu.parts(), to.stream, {}};
    Status status = work(tasks);
    if (status.ok()) {
      Result<std::shared_ptr<const Event>> event = tasks.gpu.events.record(to.stream);
      if (event.ok()) {
        unended->queued(event.value());
        state->n_unended.fetch_add(1);
        to.await(std::move(event).value(), [state, unended, check = std::move(check), holds = std::move(holds),
                                            kept = std::move(tasks.kept)](const Status& passed) {
          unended->end(passed.ok() ? check() : passed);
          state->n_unended.fetch_sub(1);
          state->wake();
        });
        state->end(Status::ok_status());
        return;
      }
      status = event.status();
    }
    keep_for_ever(std::move(holds), std::move(tasks.kept));
    state->end(std::move(status));
  });
}

void PeerStream::record(std::shared_ptr<CapturedGraph> graph, Work work, std::shared_ptr<DeviceWork> recorded) {
  state_->is_under_way.store(true);
  gpu_.thread().run([&gpu = gpu_, state = state_, graph = std::move(graph), work = std::move(work),
                     recorded = std::move(recorded)]() mutable {
    if (state->is_over.load()) return;
    Tasks tasks{gpu.parts(), graph->stream(), {}};
    Status status = work(tasks);
    for (std::shared_ptr<std::byte>& each : tasks.kept) graph->keep(std::move(each));
    if (status.ok()) {
      Result<std::shared_ptr<const Event>> event = CapturedGraph::record(graph);
      status = event.status();
      if (event.ok()) recorded->queued(std::move(event).value());
    }
    recorded->end(status);
    state->end(std::move(status));
  });
}

void PeerStream::call(std::function<Status()> calls) {
  state_->is_under_way.store(true);
  gpu_.thread().run([state = state_, calls = std::move(calls)] {
    if (!state->is_over.load()) state->end(calls());
  });
}

}  // namespace ciranda::cuda
