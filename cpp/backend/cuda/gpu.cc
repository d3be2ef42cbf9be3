#include "backend/cuda/gpu.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "backend/cuda/current_context.hpp"

namespace ciranda::cuda {
namespace {

// Programs use few streams. The copies of those beyond this number share two.
constexpr std::size_t kMostStreams = 64;

CUdeviceptr address(const std::byte* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

}  // namespace

Result<Gpu*> Gpu::open(const Driver& driver, int number) {
  CUdevice device = 0;
  if (Status status = driver.check(driver.cuDeviceGet(&device, number), "cuDeviceGet", number); !status.ok()) {
    return status;
  }
  CUcontext context = nullptr;
  const CUresult retained = driver.cuDevicePrimaryCtxRetain(&context, device);
  if (Status status = driver.check(retained, "cuDevicePrimaryCtxRetain", number); !status.ok()) return status;
  return new Gpu({driver, context, number});
}

Result<DeviceEventPtr> Gpu::record(void* queue) {
  const CurrentContext current(context_.driver, context_.context);
  if (Status status = current.status(); !status.ok()) return status;
  Result<std::shared_ptr<const Event>> event = events_.record(static_cast<CUstream>(queue));
  if (!event.ok()) return event.status();
  return DeviceEventPtr(std::move(event).value());
}

void Gpu::fetch(void* queue, std::vector<DeviceCopy> copies, DeviceEventPtr after, Device::Done done) {
  thread_.run([this, queue, copies = std::move(copies), after = std::move(after), done = std::move(done)] {
    const Result<Streams> streams = streams_of(queue);
    if (!streams.ok()) return done(streams.status());
    Result<std::shared_ptr<const Event>> event = copy(streams.value().fetches, Way::kFetch, copies, after);
    if (!event.ok()) return done(event.status());
    thread_.when_passed(std::move(event).value(), done);
  });
}

void Gpu::put(void* queue, std::vector<DeviceCopy> copies, DeviceEventPtr after, Device::Queued queued,
              Device::Done done) {
  thread_.run([this, queue, copies = std::move(copies), after = std::move(after), queued = std::move(queued),
               done = std::move(done)]() mutable {
    const Result<Streams> streams = streams_of(queue);
    if (!streams.ok()) return queued(streams.status());
    const CUstream stream = streams.value().puts;
    Device::Put put;
    if (Status status = allocate(queue, stream, copies, put); !status.ok()) return queued(status);
    const bool has_memory = std::ranges::none_of(copies, [](const DeviceCopy& one) { return one.to == nullptr; });
    if (!has_memory) return queued(std::move(put));
    Result<std::shared_ptr<const Event>> event = copy(stream, Way::kPut, copies, after);
    if (!event.ok()) return queued(event.status());
    put.event = event.value();
    queued(std::move(put));
    thread_.when_passed(std::move(event).value(), std::move(done));
  });
}

Result<Gpu::Streams> Gpu::streams_of(void* queue) {
  void* const key = streams_.contains(queue) || streams_.size() < kMostStreams ? queue : streams_.begin()->first;
  Streams& streams = streams_[key];
  for (CUstream* const stream : {&streams.fetches, &streams.puts}) {
    if (*stream != nullptr) continue;
    const CUresult made = context_.driver.cuStreamCreateWithPriority(stream, kStreamNonBlocking, 0);
    if (Status status = context_.check(made, "cuStreamCreateWithPriority"); !status.ok()) return status;
  }
  return streams;
}

// If something cannot be queued, waits for what was: the memory is the caller's again.
Result<std::shared_ptr<const Event>> Gpu::copy(CUstream stream, Way way, const std::vector<DeviceCopy>& copies,
                                               const DeviceEventPtr& after) {
  Status status = queue(stream, way, copies, after);
  if (status.ok()) {
    Result<std::shared_ptr<const Event>> event = events_.record(stream);
    if (event.ok()) return event;
    status = event.status();
  }
  context_.driver.cuStreamSynchronize(stream);
  return status;
}

Status Gpu::queue(CUstream stream, Way way, const std::vector<DeviceCopy>& copies, const DeviceEventPtr& after) {
  const Driver& driver = context_.driver;
  const CUevent made = static_cast<const Event&>(*after).handle();
  if (Status status = context_.check(driver.cuStreamWaitEvent(stream, made, 0), "cuStreamWaitEvent"); !status.ok()) {
    return status;
  }
  for (const DeviceCopy& one : copies) {
    if (one.n_bytes == 0) continue;
    const Status status = way == Way::kFetch
                              ? context_.check(driver.cuMemcpyDtoHAsync(one.to, address(one.from), one.n_bytes, stream),
                                               "cuMemcpyDtoHAsync")
                              : context_.check(driver.cuMemcpyHtoDAsync(address(one.to), one.from, one.n_bytes, stream),
                                               "cuMemcpyHtoDAsync");
    if (!status.ok()) return status;
  }
  return Status::ok_status();
}

// Fills in `to` where it is missing; it stays null where the GPU is out of memory.
Status Gpu::allocate(void* queue, CUstream stream, std::vector<DeviceCopy>& copies, Device::Put& put) {
  for (DeviceCopy& one : copies) {
    if (one.to != nullptr) continue;
    CUdeviceptr memory = 0;
    const CUresult outcome = context_.driver.cuMemAllocAsync(&memory, std::max<std::size_t>(one.n_bytes, 1), stream);
    if (outcome != CUresult::kSuccess && outcome != CUresult::kOutOfMemory) {
      return context_.check(outcome, "cuMemAllocAsync");
    }
    one.to = reinterpret_cast<std::byte*>(memory);
    if (one.to == nullptr) {
      put.allocated.emplace_back();
    } else {
      put.allocated.emplace_back(one.to, [this, queue, memory](std::byte*) { free_after(queue, memory); });
    }
  }
  return Status::ok_status();
}

// After all work that the caller's stream has been given until now, which may use the memory.
void Gpu::free_after(void* queue, CUdeviceptr memory) {
  Result<DeviceEventPtr> used = record(queue);
  if (!used.ok()) return;  // the GPU has failed, or the process ends
  thread_.run([this, queue, memory, used = std::move(used).value()] {
    const Result<Streams> streams = streams_of(queue);
    if (!streams.ok()) return;
    const CUstream stream = streams.value().puts;
    context_.driver.cuStreamWaitEvent(stream, static_cast<const Event&>(*used).handle(), 0);
    context_.driver.cuMemFreeAsync(memory, stream);
  });
}

}  // namespace ciranda::cuda
