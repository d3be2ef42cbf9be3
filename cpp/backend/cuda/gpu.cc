#include "backend/cuda/gpu.hpp"

#include <algorithm>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "backend/cuda/current_context.hpp"
#include "backend/cuda/stream_capture.hpp"

namespace ciranda::cuda {
namespace {

// Programs use few streams. Streams beyond this number share the copy streams of the first one.
constexpr std::size_t kMostStreams = 64;

constexpr std::align_val_t kPageableAlignment{64};

// A stream that comes after all that is in the caller's now, whichever thread asks. The per-thread default stream is
// another one in each thread; the legacy default stream comes after all of them.
CUstream known_to_all_threads(void* queue) {
  return reinterpret_cast<std::uintptr_t>(queue) == kStreamPerThread ? nullptr : static_cast<CUstream>(queue);
}

// "GPU-5f0a11c2", by which nvidia-smi and CUDA_VISIBLE_DEVICES know the GPU too.
std::string beginning_of(const CUuuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "GPU-";
  for (const char each : std::span(uuid.bytes).first<4>()) {
    const auto byte = static_cast<unsigned char>(each);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

// Returns `done`, which then also keeps alive what the copies use.
Device::Done until(const CopyStream::Copied& copied, Device::Done done) {
  return [kept = copied.kept, done = std::move(done)](Status status) { done(std::move(status)); };
}

}  // namespace

Result<Gpu*> Gpu::open(const Driver& driver, int number, Images images) {
  const std::string numbered = "GPU " + std::to_string(number);
  CUdevice device = 0;
  if (Status status = driver.check(driver.cuDeviceGet(&device, number), "cuDeviceGet", numbered); !status.ok()) {
    return status;
  }
  CUuuid uuid{};
  const CUresult told = driver.cuDeviceGetUuid(&uuid, device);
  if (Status status = driver.check(told, "cuDeviceGetUuid", numbered); !status.ok()) return status;
  const std::string name = numbered + " (" + beginning_of(uuid) + ")";
  CUcontext retained = nullptr;
  const CUresult outcome = driver.cuDevicePrimaryCtxRetain(&retained, device);
  if (Status status = driver.check(outcome, "cuDevicePrimaryCtxRetain", name); !status.ok()) return status;
  const GpuContext context{driver, retained, name};
  const CurrentContext current(driver, retained);
  if (Status status = current.status(); !status.ok()) return status;
  int n_visible = 0;
  if (driver.cuDeviceGetCount(&n_visible) != CUresult::kSuccess) n_visible = 0;
  return new Gpu(context, device, uuid, n_visible, LoadedKernels::load(context, device, images));
}

Result<CaptureId> Gpu::capture(void* queue) const {
  const CurrentContext current(context_.driver, context_.context);
  return capture_of(context_.driver, static_cast<CUstream>(queue));
}

HostMemory Gpu::allocate_on_host(std::size_t n_bytes) {
  if (auto pinned = pinned_.allocate(n_bytes); pinned != nullptr) return {std::move(pinned)};
  auto* const pageable = static_cast<std::byte*>(::operator new(n_bytes, kPageableAlignment, std::nothrow));
  if (pageable == nullptr) return {};
  return {{pageable, [](std::byte* freed) { ::operator delete(freed, kPageableAlignment); }}, false};
}

Result<DeviceEventPtr> Gpu::record(void* queue) {
  const CurrentContext current(context_.driver, context_.context);
  if (Status status = current.status(); !status.ok()) return status;
  Result<std::shared_ptr<const Event>> event = events_.record(static_cast<CUstream>(queue));
  if (!event.ok()) return event.status();
  return DeviceEventPtr(std::move(event).value());
}

void Gpu::fetch(void* queue, std::vector<DeviceCopy> copies, DeviceEventPtr after, Device::Done done) {
  thread_.run([this, queue, copies = std::move(copies), after = std::move(after), done = std::move(done)]() mutable {
    const bool are_pinned = std::ranges::all_of(copies, &DeviceCopy::is_pinned);
    when_ready(are_pinned, after,
               [this, queue, copies = std::move(copies), after, done = std::move(done)](const Status& ready) {
                 if (!ready.ok()) return done(ready);
                 const Result<Streams*> streams = streams_of(queue);
                 if (!streams.ok()) return done(streams.status());
                 const Result<CopyStream::Copied> copied = streams.value()->fetches.copy(copies, after);
                 if (!copied.ok()) return done(copied.status());
                 thread_.when_passed(copied.value().event, until(copied.value(), done));
               });
  });
}

// Calls `copy` once the copies may be given to the driver: at once, but for those of pageable memory, for which the
// driver lets this thread wait: they must not wait for a caller's stream.
void Gpu::when_ready(bool are_pinned, const DeviceEventPtr& after, Device::Done copy) {
  if (are_pinned) return copy(Status::ok_status());
  thread_.when_passed(std::static_pointer_cast<const Event>(after), std::move(copy));
}

void Gpu::put(void* queue, std::vector<DeviceCopy> copies, DeviceEventPtr after, Device::Queued queued,
              Device::Done done) {
  thread_.run([this, queue, copies = std::move(copies), after = std::move(after), queued = std::move(queued),
               done = std::move(done)]() mutable {
    const bool are_pinned = std::ranges::all_of(copies, &DeviceCopy::is_pinned);
    when_ready(are_pinned, after,
               [this, queue, copies = std::move(copies), after, queued = std::move(queued),
                done = std::move(done)](const Status& ready) mutable {
                 ready.ok() ? put_now(queue, std::move(copies), after, queued, done) : queued(ready);
               });
  });
}

void Gpu::put_now(void* queue, std::vector<DeviceCopy> copies, const DeviceEventPtr& after,
                  const Device::Queued& queued, const Device::Done& done) {
  const Result<Streams*> streams = streams_of(queue);
  if (!streams.ok()) return queued(streams.status());
  CopyStream& stream = streams.value()->puts;
  Device::Put put;
  for (DeviceCopy& one : copies) {
    if (one.to != nullptr) continue;
    Result<std::shared_ptr<std::byte>> memory = allocate(queue, stream.handle(), one.n_bytes);
    if (!memory.ok()) return queued(memory.status());
    one.to = memory.value().get();
    put.allocated.push_back(std::move(memory).value());
  }
  const bool has_memory = std::ranges::none_of(copies, [](const DeviceCopy& one) { return one.to == nullptr; });
  if (!has_memory) return queued(std::move(put));
  const Result<CopyStream::Copied> copied = stream.copy(copies, after);
  if (!copied.ok()) return queued(copied.status());
  put.event = copied.value().event;
  queued(std::move(put));
  thread_.when_passed(copied.value().event, until(copied.value(), done));
}

void Gpu::allocate_results(void* queue, std::vector<std::size_t> n_bytes, Device::Queued queued) {
  thread_.run([this, queue, n_bytes = std::move(n_bytes), queued = std::move(queued)] {
    queued(allocate_all(queue, n_bytes));
  });
}

// In the stream of results: none of those waits for what the caller's stream is given later.
void Gpu::checksums(void* queue, ByteRanges ranges, Device::Summed summed) {
  thread_.run([this, queue, ranges = std::move(ranges), summed = std::move(summed)] {
    const Result<CUstream> of_results = stream_of_results(queue);
    if (!of_results.ok()) return summed(of_results.status());
    const CUstream stream = of_results.value();
    const std::shared_ptr<std::byte> block = pinned_.allocate(checksum_block_bytes(ranges));
    if (block == nullptr) return summed(checksums_by_host(parts(), stream, ranges));
    const auto event = queue_checksums(parts(), stream, ranges, block.get());
    if (!event.ok()) return summed(event.status());
    thread_.when_passed(event.value(), [block, ranges, summed](const Status& passed) {
      if (!passed.ok()) return summed(passed);
      summed(checksums_in(block.get(), ranges));
    });
  });
}

Result<Gpu::Streams*> Gpu::streams_of(void* queue) {
  void* const key = streams_.contains(queue) || streams_.size() < kMostStreams ? queue : streams_.begin()->first;
  Streams& streams = streams_.try_emplace(key, parts()).first->second;
  for (CopyStream* const stream : {&streams.fetches, &streams.puts}) {
    if (Status status = stream->open(); !status.ok()) return status;
  }
  return &streams;
}

Result<CUstream> Gpu::stream_of_results(void* queue) {
  const Result<Streams*> streams = streams_of(queue);
  return streams.ok() ? Result<CUstream>(streams.value()->puts.handle()) : streams.status();
}

// Null where the GPU is out of memory.
Result<std::shared_ptr<std::byte>> Gpu::allocate(void* queue, CUstream stream, std::size_t n_bytes) {
  const Result<CUdeviceptr> memory = results_.allocate(std::max<std::size_t>(n_bytes, 1), stream);
  if (!memory.ok()) return memory.status();
  if (memory.value() == 0) return std::shared_ptr<std::byte>();
  return std::shared_ptr<std::byte>(reinterpret_cast<std::byte*>(memory.value()),
                                    [this, queue, at = memory.value()](std::byte*) { free_after(queue, at); });
}

Result<Device::Put> Gpu::allocate_all(void* queue, const std::vector<std::size_t>& n_bytes) {
  const Result<CUstream> of_results = stream_of_results(queue);
  if (!of_results.ok()) return of_results.status();
  const CUstream stream = of_results.value();
  Device::Put made;
  for (const std::size_t each : n_bytes) {
    Result<std::shared_ptr<std::byte>> memory = allocate(queue, stream, each);
    if (!memory.ok()) return memory.status();
    made.allocated.push_back(std::move(memory).value());
  }
  Result<std::shared_ptr<const Event>> event = events_.record(stream);
  if (!event.ok()) return event.status();
  made.event = std::move(event).value();
  return made;
}

// This one, and those that were dropped before; none while the stream is captured.
std::vector<CUdeviceptr> Gpu::take_dropped(void* queue, CUdeviceptr memory) {
  const Result<CaptureId> captured = capture(known_to_all_threads(queue));
  const bool must_wait = !captured.ok() || captured.value() != 0;
  const std::lock_guard lock(mutex_);
  dropped_[queue].push_back(memory);
  return must_wait ? std::vector<CUdeviceptr>{} : std::move(dropped_.extract(queue).mapped());
}

// Frees the memory after all work that is in the caller's stream now, since that may use it. An event that is recorded
// while the stream is captured would make our stream part of the graph, so then it is freed with what is dropped next.
void Gpu::free_after(void* queue, CUdeviceptr memory) {
  std::vector<CUdeviceptr> dropped = take_dropped(queue, memory);
  if (dropped.empty()) return;
  Result<DeviceEventPtr> used = record(known_to_all_threads(queue));
  if (!used.ok()) return;  // the GPU has failed, or the process ends
  thread_.run([this, queue, dropped = std::move(dropped), used = std::move(used).value()] {
    const Result<CUstream> stream = stream_of_results(queue);
    if (!stream.ok()) return;
    context_.driver.cuStreamWaitEvent(stream.value(), static_cast<const Event&>(*used).handle(), 0);
    for (const CUdeviceptr each : dropped) context_.driver.cuMemFreeAsync(each, stream.value());
  });
}

}  // namespace ciranda::cuda
