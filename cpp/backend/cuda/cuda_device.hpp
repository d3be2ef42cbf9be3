// CudaDevice: all NVIDIA GPUs of this process. Each is opened when a call's tensors first lie on it.
// Called by registry.cc (`all_backends`), PeerBackend and NcclBackend; any thread.
#pragma once

#include "backend/cuda/gpu.hpp"
#include "backend/cuda/loaded_kernels.hpp"
#include "backend/device.hpp"

namespace ciranda::cuda {

// The device of the process. Returns an error if the driver cannot be used; it says why, and what to do. Any thread.
Result<Device*> find_device();

// A further device, with the caller's images of kernels: for tests. It lives as long as the process.
Result<Device*> make_device(Images images);

// The GPU at this place. REQUIRES: the device was made by one of the functions above.
Result<Gpu*> gpu_at(Device& device, const Place& place);

}  // namespace ciranda::cuda
