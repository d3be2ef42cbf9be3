// CudaDevice: all GPUs of NVIDIA's of this process. Each is opened when a call's tensors first lie on it.
// Called by registry.cc (`all_backends`); any thread.
#pragma once

#include "backend/device.hpp"

namespace ciranda::cuda {

// The device of the process. Returns an error if the driver cannot be used; it says why, and what to do. Any thread.
Result<Device*> find_device();

}  // namespace ciranda::cuda
