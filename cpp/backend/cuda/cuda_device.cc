#include "backend/cuda/cuda_device.hpp"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "backend/cuda/captured_graph.hpp"
#include "backend/cuda/driver.hpp"
#include "backend/cuda/gpu.hpp"
#include "backend/cuda/kernels/images.hpp"

namespace ciranda::cuda {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(const Driver& driver, Images images) : driver_(driver), images_(images) {}

  int n_devices() const override {
    int n = 0;
    return driver_.cuDeviceGetCount(&n) == CUresult::kSuccess ? n : 0;
  }

  std::string name(const Place& place) override {
    const Result<Gpu*> gpu = at(place);
    return gpu.ok() ? gpu.value()->name() : device_name(place);
  }

  Status kernels(const Place& place) override {
    const Result<Gpu*> gpu = at(place);
    return gpu.ok() ? gpu.value()->kernels() : gpu.status();
  }

  Result<CaptureId> capture(const Place& place) override {
    const Result<Gpu*> gpu = at(place);
    return gpu.ok() ? gpu.value()->capture(place.queue) : Result<CaptureId>(CaptureId{0});
  }

  HostMemory allocate_on_host(const Place& place, std::size_t n_bytes) override {
    const Result<Gpu*> gpu = at(place);
    return gpu.ok() ? gpu.value()->allocate_on_host(n_bytes) : HostMemory{};
  }

  Result<DeviceEventPtr> record(const Place& place) override {
    const Result<Gpu*> gpu = at(place);
    return gpu.ok() ? gpu.value()->record(place.queue) : Result<DeviceEventPtr>(gpu.status());
  }

  Result<DeviceEventPtr> record_in_capture(const Place& place) override {
    const Result<Gpu*> gpu = at(place);
    if (!gpu.ok()) return gpu.status();
    return CapturedGraph::record(*gpu.value(), static_cast<CUstream>(place.queue));
  }

  void fetch(const Place& place, std::vector<DeviceCopy> copies, DeviceEventPtr after, Done done) override {
    at(place).value()->fetch(place.queue, std::move(copies), std::move(after), std::move(done));
  }

  void put(const Place& place, std::vector<DeviceCopy> copies, DeviceEventPtr after, Queued queued,
           Done done) override {
    at(place).value()->put(place.queue, std::move(copies), std::move(after), std::move(queued), std::move(done));
  }

  void allocate_results(const Place& place, std::vector<std::size_t> n_bytes, const DeviceEventPtr& after,
                        Queued queued) override {
    if (const auto graph = static_cast<const Event&>(*after).graph(); graph != nullptr) {
      queued = [graph, queued = std::move(queued)](Result<Put> made) {
        made.ok() ? graph->keep_results(std::move(made).value(), queued) : queued(std::move(made));
      };
    }
    at(place).value()->allocate_results(place.queue, std::move(n_bytes), std::move(queued));
  }

  void checksums(const Place& place, std::vector<std::span<const std::byte>> ranges, Summed summed) override {
    at(place).value()->checksums(place.queue, std::move(ranges), std::move(summed));
  }

  Result<Gpu*> at(const Place& place) {
    Slot& slot = slot_of(place.index);
    const std::lock_guard lock(slot.mutex);
    if (slot.gpu != nullptr) return slot.gpu;
    const Result<Gpu*> opened = Gpu::open(driver_, place.index, images_);
    if (opened.ok()) slot.gpu = opened.value();
    return opened;
  }

 private:
  // Opening a GPU takes long, so each has a lock of its own: only threads that need the same GPU wait. record() opens
  // it before anything is copied from or to it.
  struct Slot {
    std::mutex mutex;
    Gpu* gpu = nullptr;
  };

  Slot& slot_of(int number) {
    const std::lock_guard lock(mutex_);
    return slots_[number];
  }

  const Driver& driver_;
  const Images images_;
  std::mutex mutex_;
  std::map<int, Slot> slots_;  // by number of the GPU
};

}  // namespace

Result<Device*> find_device() {
  static const Result<Device*> device = make_device(image_for);
  return device;
}

Result<Gpu*> gpu_at(Device& device, const Place& place) { return static_cast<CudaDevice&>(device).at(place); }

Result<Device*> make_device(Images images) {
  const Result<const Driver*> driver = Driver::load();
  if (!driver.ok()) return driver.status();
  return new CudaDevice(*driver.value(), images);
}

}  // namespace ciranda::cuda
