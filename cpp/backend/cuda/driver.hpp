// Driver: the CUDA driver of this process, libcuda.so.1, found at run time. A process that never calls load() opens no
// library of NVIDIA's and makes no context.
//
//   const Result<const Driver*> driver = Driver::load();
//   if (!driver.ok()) return driver.status();
//   const Status made = driver.value()->check(driver.value()->cuMemAlloc(&at, n_bytes), "cuMemAlloc", "GPU 0");
//
// Threads: any. The first load() searches, the others wait for it; its result is kept as long as the process lives.
// Failure: a status with the version found, the version needed, and what to do. Kind InvalidArgument: tensors on a GPU
// are refused here, all else works.
//
// Called by CudaDevice, CurrentContext, Events, Gpu and stream_capture.hpp.
#pragma once

#include <string_view>

#include "backend/cuda/driver_api.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

class Driver : public DriverFunctions {
 public:
  static Result<const Driver*> load();

  // Returns ok for kSuccess, else an Internal error with the call, the error's name and text, the GPU if one is given,
  // and what to do about it where we know that.
  Status check(CUresult outcome, std::string_view call, std::string_view gpu = {}) const;

  // The newest CUDA that the driver supports: 1000 * major + 10 * minor.
  int version() const { return version_; }

 private:
  Driver(const DriverFunctions& functions, int version) : DriverFunctions(functions), version_(version) {}
  static Result<Driver> open();

  int version_;
};

}  // namespace ciranda::cuda
