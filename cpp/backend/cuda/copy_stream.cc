#include "backend/cuda/copy_stream.hpp"

#include <cstring>
#include <utility>

#include "backend/cuda/kernels/launches.hpp"

namespace ciranda::cuda {
namespace {

CUdeviceptr address(const std::byte* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

}  // namespace

Status CopyStream::open() {
  if (handle_ != nullptr) return Status::ok_status();
  const CUresult made = gpu_.context.driver.cuStreamCreateWithPriority(&handle_, kStreamNonBlocking, 0);
  return gpu_.context.check(made, "cuStreamCreateWithPriority");
}

Result<CopyStream::Copied> CopyStream::copy(const std::vector<DeviceCopy>& copies, const DeviceEventPtr& after) {
  std::shared_ptr<std::byte> pieces;
  const CopyPlan planned = plan(copies, pieces);
  Status status = queue(planned, pieces.get(), after);
  if (status.ok()) {
    Result<std::shared_ptr<const Event>> event = gpu_.events.record(handle_);
    if (event.ok()) return Copied{std::move(event).value(), std::move(pieces)};
    status = event.status();
  }
  gpu_.context.driver.cuStreamSynchronize(handle_);
  return status;
}

// Allocates `pieces`, memory for the descriptions of packed tensors, if any are packed.
CopyPlan CopyStream::plan(const std::vector<DeviceCopy>& copies, std::shared_ptr<std::byte>& pieces) {
  CopyPlan planned = plan_copies(copies, direction_, gpu_.kernels == nullptr ? 0 : kBufferBytes);
  if (planned.n_packed == 0) return planned;
  if (has_buffer()) pieces = gpu_.pinned.allocate(planned.n_packed * sizeof(Piece));
  return pieces == nullptr ? plan_copies(copies, direction_, 0) : planned;
}

// Allocates the buffer at first use. If that fails, the next call tries again: the program may have freed memory.
bool CopyStream::has_buffer() {
  if (buffer_ != nullptr) return true;
  CUdeviceptr memory = 0;
  const CUresult outcome = gpu_.context.driver.cuMemAllocAsync(&memory, kBufferBytes, handle_);
  if (outcome == CUresult::kSuccess) buffer_ = reinterpret_cast<std::byte*>(memory);
  return buffer_ != nullptr;
}

Status CopyStream::queue(const CopyPlan& plan, std::byte* pieces, const DeviceEventPtr& after) {
  const CUevent made = static_cast<const Event&>(*after).handle();
  const CUresult waits = gpu_.context.driver.cuStreamWaitEvent(handle_, made, 0);
  if (Status status = gpu_.context.check(waits, "cuStreamWaitEvent"); !status.ok()) return status;
  for (const CopyStep& step : plan.steps) {
    const auto parts = std::span(plan.parts).subspan(step.first_part, step.n_parts);
    Status status = step.is_packed() ? queue_packed(parts, pieces) : queue_copy(parts.front());
    if (!status.ok()) return status;
    if (step.is_packed()) pieces += step.n_parts * sizeof(Piece);
  }
  return Status::ok_status();
}

// All steps use the same buffer: the stream executes them one after the other.
Status CopyStream::queue_packed(std::span<const DeviceCopy> parts, std::byte* pieces) {
  const std::byte* const begin = on_host(parts.front(), direction_);
  const std::byte* const end = on_host(parts.back(), direction_) + parts.back().n_bytes;
  const auto n_bytes = static_cast<std::size_t>(end - begin);
  if (direction_ == Direction::kToGpu) {
    Status status = queue_copy({buffer_, begin, n_bytes});
    return status.ok() ? queue_launch(parts, pieces) : status;
  }
  Status status = queue_launch(parts, pieces);
  return status.ok() ? queue_copy({parts.front().to, buffer_, n_bytes}) : status;
}

// In the buffer the parts are as far apart as on the host. The GPU reads their descriptions in host memory, since
// copying them first would take one more call.
Status CopyStream::queue_launch(std::span<const DeviceCopy> parts, std::byte* pieces) {
  const std::byte* const begin = on_host(parts.front(), direction_);
  std::vector<Piece> described;
  for (const DeviceCopy& part : parts) {
    std::byte* const in_buffer = buffer_ + (on_host(part, direction_) - begin);
    const bool packs = direction_ == Direction::kToHost;
    described.push_back({packs ? part.from : in_buffer, packs ? in_buffer : part.to, part.n_bytes, 0});
  }
  const std::uint64_t n_chunks = number_chunks(described, kChunkBytes);
  std::memcpy(pieces, described.data(), described.size() * sizeof(Piece));
  return gpu_.kernels->copy({reinterpret_cast<const Piece*>(pieces), described.size(), n_chunks}, handle_);
}

Status CopyStream::queue_copy(const DeviceCopy& one) {
  const Driver& driver = gpu_.context.driver;
  if (direction_ == Direction::kToHost) {
    const CUresult outcome = driver.cuMemcpyDtoHAsync(one.to, address(one.from), one.n_bytes, handle_);
    return gpu_.context.check(outcome, "cuMemcpyDtoHAsync");
  }
  const CUresult outcome = driver.cuMemcpyHtoDAsync(address(one.to), one.from, one.n_bytes, handle_);
  return gpu_.context.check(outcome, "cuMemcpyHtoDAsync");
}

}  // namespace ciranda::cuda
