// What torch's libraries ask of the CUDA that they were built without.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include "allocator.hpp"
#include "current.hpp"

namespace ciranda::fakes::torch_cuda {
namespace {

using c10::DeviceIndex;

struct Hooks : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}

  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return n_devices() > 0; }
  bool hasCUDA() const override { return isAvailable(); }
  bool hasCUDART() const override { return true; }

  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(n_devices()); }
  int getNumGPUs() const override { return n_devices(); }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex current_device() const override { return static_cast<DeviceIndex>(torch_cuda::current_device()); }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(DeviceIndex device) const override { set_current_device(device); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex before = current_device();
    set_current_device(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  void deviceSynchronize(DeviceIndex device) const override { synchronize_device(device); }

  at::Allocator* getCUDADeviceAllocator() const override { return &device_allocator(); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  c10::Device getDeviceFromPtr(void*) const override { return {c10::kCUDA, current_device()}; }

  // Kernels run on the host, with its generator.
  const at::Generator& getDefaultGenerator(DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
  at::Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};

using at::CUDAHooksArgs;
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", Hooks)

const bool kHasAllocator = [] {
  c10::SetAllocator(c10::kCUDA, &device_allocator());
  return true;
}();

}  // namespace
}  // namespace ciranda::fakes::torch_cuda
