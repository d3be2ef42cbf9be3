#include "backend/cuda/events.hpp"

#include "backend/cuda/current_context.hpp"
#include "backend/cuda/stream_capture.hpp"

namespace ciranda::cuda {

Event::~Event() { events_.give_back(handle_); }

Status Event::order(const Place& place) const {
  const GpuContext& gpu = events_.gpu_;
  const CurrentContext current(gpu.driver, gpu.context);
  if (Status status = current.status(); !status.ok()) return status;
  const auto stream = static_cast<CUstream>(place.queue);
  if (in_graph_.graph != nullptr) return order_in_graph(gpu, stream);
  if (is_capturing(gpu.driver, stream)) {
    // What has passed needs no order, and a graph cannot wait for what is outside of it.
    return gpu.driver.cuEventQuery(handle_) == CUresult::kSuccess ? Status::ok_status() : being_captured();
  }
  return gpu.check(gpu.driver.cuStreamWaitEvent(stream, handle_, 0), "cuStreamWaitEvent");
}

// A stream outside of the capture would become a part of it.
Status Event::order_in_graph(const GpuContext& gpu, CUstream stream) const {
  const Result<std::uint64_t> capture = capture_of(gpu.driver, stream);
  if (!capture.ok() || capture.value() != in_graph_.capture) {
    return Status::invalid_argument(
        "its result is part of a CUDA graph, which makes it whenever it is launched: wait for it on a stream that is "
        "captured into the same graph, before the capture ends");
  }
  return gpu.check(gpu.driver.cuStreamWaitEvent(stream, handle_, 0), "cuStreamWaitEvent");
}

Result<bool> Event::query() const {
  const GpuContext& gpu = events_.gpu_;
  const CurrentContext current(gpu.driver, gpu.context);
  const CUresult outcome = gpu.driver.cuEventQuery(handle_);
  if (outcome == CUresult::kNotReady) return false;
  Status status = gpu.check(outcome, "cuEventQuery");
  return status.ok() ? Result<bool>(true) : status;
}

Result<std::shared_ptr<const Event>> Events::record(CUstream stream, InGraph in_graph) {
  Result<CUevent> handle = take();
  if (!handle.ok()) return handle.status();
  auto event = std::make_shared<const Event>(*this, handle.value(), std::move(in_graph));
  if (Status status = gpu_.check(gpu_.driver.cuEventRecord(handle.value(), stream), "cuEventRecord"); !status.ok()) {
    return status;
  }
  return event;
}

Result<CUevent> Events::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const CUevent handle = free_.back();
      free_.pop_back();
      return handle;
    }
  }
  CUevent handle = nullptr;
  if (Status status = gpu_.check(gpu_.driver.cuEventCreate(&handle, kEventDisableTiming), "cuEventCreate");
      !status.ok()) {
    return status;
  }
  return handle;
}

void Events::give_back(CUevent handle) {
  const std::lock_guard lock(mutex_);
  free_.push_back(handle);
}

}  // namespace ciranda::cuda
