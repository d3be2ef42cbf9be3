// What torch asks of a device by its type: the current device and streams of a thread, and events.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <thread>

#include "allocator.hpp"
#include "current.hpp"

namespace ciranda::fakes::torch_cuda {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

bool is_done(CUresult queried, const char* call) {
  if (queried == CUresult::kNotReady) return false;
  check(queried, call);
  return true;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }

  Device getDevice() const override { return {c10::kCUDA, static_cast<DeviceIndex>(current_device())}; }
  void setDevice(Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(Device device) const noexcept override { set_current_device(device.index()); }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    if (before != device) setDevice(device);
    return before;
  }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(n_devices()); }
  void synchronizeDevice(DeviceIndex device) const override { synchronize_device(device); }

  Stream getStream(Device device) const override { return to_stream(device.index(), current_stream(device.index())); }
  Stream getDefaultStream(Device device) const override { return to_stream(device.index(), nullptr); }
  Stream getStreamFromGlobalPool(Device device, bool has_high_priority) const override {
    return getNewStream(device, has_high_priority ? -1 : 0);
  }
  Stream getNewStream(Device device, int priority) const override {
    const int index = device.has_index() ? device.index() : current_device();
    return to_stream(index, make_stream(index, priority));
  }
  Stream exchangeStream(Stream stream) const override {
    const Stream before = getStream(stream.device());
    set_current_stream(stream.device_index(), handle_of(stream));
    return before;
  }
  void* getStreamNativeHandle(const Stream stream) const override { return handle_of(stream); }
  bool queryStream(const Stream& stream) const override {
    use_context(stream.device_index());
    return is_done(driver().query_stream(handle_of(stream)), "cuStreamQuery");
  }
  void synchronizeStream(const Stream& stream) const override {
    use_context(stream.device_index());
    check(driver().synchronize_stream(handle_of(stream)), "cuStreamSynchronize");
  }

  void record(void** event, const Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    use_context(stream.device_index());
    auto& handle = reinterpret_cast<CUevent&>(*event);
    if (handle == nullptr) check(driver().create_event(&handle, cuda::kEventDisableTiming), "cuEventCreate");
    check(driver().record_event(handle, handle_of(stream)), "cuEventRecord");
  }
  void block(void* event, const Stream& stream) const override {
    if (event == nullptr) return;
    use_context(stream.device_index());
    check(driver().wait_event(handle_of(stream), static_cast<CUevent>(event), 0), "cuStreamWaitEvent");
  }
  bool queryEvent(void* event) const override {
    use_context(current_device());
    return event == nullptr || is_done(driver().query_event(static_cast<CUevent>(event)), "cuEventQuery");
  }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) std::this_thread::yield();
  }
  void destroyEvent(void* event, const DeviceIndex device) const noexcept override {
    if (event == nullptr) return;
    use_context(device);
    driver().destroy_event(static_cast<CUevent>(event));
  }

  void recordDataPtrOnStream(const c10::DataPtr& memory, const Stream& stream) const override {
    record_stream(memory, handle_of(stream));
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace
}  // namespace ciranda::fakes::torch_cuda
