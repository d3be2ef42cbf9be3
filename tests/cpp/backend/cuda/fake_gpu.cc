#include "backend/cuda/fake_gpu.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda.hpp"

namespace ciranda::cuda::testing {
namespace {

const Driver& loaded() {
  const Result<const Driver*> driver = Driver::load();
  if (driver.ok()) return *driver.value();
  ADD_FAILURE() << driver.status().message();
  std::exit(EXIT_FAILURE);
}

template <typename Function>
Function of_fake(const char* name) {
  void* const fake = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (fake == nullptr) std::abort();
  return reinterpret_cast<Function>(dlsym(fake, name));
}

template <typename Function>
void find(const char* name, Function& function) {
  function = of_fake<Function>(name);
}

}  // namespace

FakeDriver::FakeDriver(const Driver& driver) : Driver(driver) {
  find("cuDeviceCanAccessPeer", cuDeviceCanAccessPeer);
  find("cuDeviceGetName", cuDeviceGetName);
  find("cuDevicePrimaryCtxRelease_v2", cuDevicePrimaryCtxRelease);
  find("cuMemHostRegister_v2", cuMemHostRegister);
  find("cuMemHostUnregister", cuMemHostUnregister);
  find("cuMemHostGetDevicePointer_v2", cuMemHostGetDevicePointer);
  find("cuPointerGetAttributes", cuPointerGetAttributes);
  find("cuStreamDestroy_v2", cuStreamDestroy);
  find("cuStreamQuery", cuStreamQuery);
  find("cuStreamWriteValue32_v2", cuStreamWriteValue32);
  find("cuEventDestroy_v2", cuEventDestroy);
  find("cuModuleUnload", cuModuleUnload);
}

const FakeDriver& fake_driver() {
  static const FakeDriver driver(loaded());
  return driver;
}

void expect_success(CUresult outcome, const std::string& call) {
  EXPECT_EQ(fake_driver().check(outcome, call).message(), "");
}

void set_fake(const char* name, const char* value) {
  of_fake<decltype(&fakes::fake_cuda_set)>("fake_cuda_set")(name, value);
}

std::uint64_t n_fake_calls() { return of_fake<decltype(&fakes::fake_cuda_n_calls)>("fake_cuda_n_calls")(); }

Gpu::Gpu(int device) : driver_(&fake_driver()), device_(device) {
  expect_success(driver_->cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  enter();
}

Gpu::~Gpu() { driver_->cuDevicePrimaryCtxRelease(device_); }

void Gpu::enter() const { expect_success(driver_->cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

CUdeviceptr Gpu::allocate(std::size_t n_bytes) const {
  CUdeviceptr address = 0;
  expect_success(driver_->cuMemAlloc(&address, n_bytes), "cuMemAlloc");
  return address;
}

std::byte* Gpu::allocate_pinned(std::size_t n_bytes) const {
  void* address = nullptr;
  expect_success(driver_->cuMemHostAlloc(&address, n_bytes, kMemHostPortable), "cuMemHostAlloc");
  return static_cast<std::byte*>(address);
}

CUstream Gpu::make_stream(unsigned flags) const {
  CUstream stream = nullptr;
  expect_success(driver_->cuStreamCreateWithPriority(&stream, flags, 0), "cuStreamCreateWithPriority");
  return stream;
}

CUevent Gpu::make_event() const {
  CUevent event = nullptr;
  expect_success(driver_->cuEventCreate(&event, kEventDisableTiming), "cuEventCreate");
  return event;
}

CUevent Gpu::record(CUstream stream) const {
  CUevent event = make_event();
  expect_success(driver_->cuEventRecord(event, stream), "cuEventRecord");
  return event;
}

void Gpu::fill(CUdeviceptr to, int value, std::size_t n_bytes, CUstream stream) const {
  expect_success(driver_->cuMemsetD8Async(to, static_cast<unsigned char>(value), n_bytes, stream), "cuMemsetD8Async");
}

void Gpu::launch_copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t n_bytes, CUstream stream) const {
  expect_success(launch("plain_copy", {&to, &from, &n_bytes}, stream), "cuLaunchKernel");
}

void Gpu::launch_add(CUdeviceptr to, CUdeviceptr from, std::uint64_t n_bytes, CUstream stream) const {
  expect_success(launch("plain_add", {&to, &from, &n_bytes}, stream), "cuLaunchKernel");
}

CUresult Gpu::launch(const char* kernel, std::vector<void*> arguments, CUstream stream) const {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  if (CUresult loaded = driver_->cuModuleLoadData(&module, "code"); loaded != CUresult::kSuccess) return loaded;
  if (CUresult found = driver_->cuModuleGetFunction(&function, module, kernel); found != CUresult::kSuccess)
    return found;
  const CUresult launched = driver_->cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments.data(), nullptr);
  driver_->cuModuleUnload(module);
  return launched;
}

std::vector<int> Gpu::read(CUdeviceptr from, std::size_t n_bytes, CUstream stream) const {
  std::vector<unsigned char> bytes(n_bytes);
  expect_success(driver_->cuMemcpyDtoHAsync(bytes.data(), from, n_bytes, stream), "cuMemcpyDtoHAsync");
  return {bytes.begin(), bytes.end()};
}

void Gpu::synchronize(CUstream stream) const {
  expect_success(driver_->cuStreamSynchronize(stream), "cuStreamSynchronize");
}

}  // namespace ciranda::cuda::testing
