// Gpu: a device of the driver for tests, with its context current on the thread that makes it. Calls are expected to
// succeed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/driver.hpp"
#include "exports.hpp"

namespace ciranda::cuda::testing {

// The fake driver, with those of its functions that the engine does not call.
struct FakeDriver : Driver {
  explicit FakeDriver(const Driver& driver);

  decltype(&fakes::cuDeviceCanAccessPeer) cuDeviceCanAccessPeer;
  decltype(&fakes::cuDeviceGetName) cuDeviceGetName;
  decltype(&fakes::cuDevicePrimaryCtxRelease_v2) cuDevicePrimaryCtxRelease;
  decltype(&fakes::cuMemHostRegister_v2) cuMemHostRegister;
  decltype(&fakes::cuMemHostUnregister) cuMemHostUnregister;
  decltype(&fakes::cuMemHostGetDevicePointer_v2) cuMemHostGetDevicePointer;
  decltype(&fakes::cuPointerGetAttributes) cuPointerGetAttributes;
  decltype(&fakes::cuStreamDestroy_v2) cuStreamDestroy;
  decltype(&fakes::cuStreamQuery) cuStreamQuery;
  decltype(&fakes::cuStreamWriteValue32_v2) cuStreamWriteValue32;
  decltype(&fakes::cuEventDestroy_v2) cuEventDestroy;
  decltype(&fakes::cuModuleUnload) cuModuleUnload;
};

// The one of this process, which ends if it cannot be loaded.
const FakeDriver& fake_driver();

class Gpu {
 public:
  explicit Gpu(int device = 0);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const FakeDriver* operator->() const { return driver_; }
  CUcontext context() const { return context_; }
  // Makes the context current on this thread as well.
  void enter() const;

  CUdeviceptr allocate(std::size_t n_bytes) const;
  std::byte* allocate_pinned(std::size_t n_bytes) const;
  CUstream make_stream(unsigned flags = kStreamNonBlocking) const;
  CUevent make_event() const;
  CUevent record(CUstream stream) const;  // a new event

  void fill(CUdeviceptr to, int value, std::size_t n_bytes, CUstream stream) const;
  // The kernels plain_copy and plain_add.
  void launch_copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t n_bytes, CUstream stream) const;
  void launch_add(CUdeviceptr to, CUdeviceptr from, std::uint64_t n_bytes, CUstream stream) const;
  CUresult launch(const char* kernel, std::vector<void*> arguments, CUstream stream) const;
  // What it holds after all that `stream` was given.
  std::vector<int> read(CUdeviceptr from, std::size_t n_bytes, CUstream stream) const;
  void synchronize(CUstream stream) const;

 private:
  const FakeDriver* driver_;
  int device_;
  CUcontext context_ = nullptr;
};

void expect_success(CUresult outcome, const std::string& call);

// Beside the driver's functions, the fake's own.
void set_fake(const char* name, const char* value);
std::uint64_t n_fake_calls();

}  // namespace ciranda::cuda::testing
