// The current device of each thread, and its current stream on each device. A stream of torch is known by the driver's
// handle; 0 is the legacy default stream.
#pragma once

#include <c10/core/Stream.h>

#include "driver.hpp"

namespace ciranda::fakes::torch_cuda {

int current_device();
void set_current_device(int device);

c10::Stream to_stream(int device, CUstream handle);
CUstream handle_of(const c10::Stream& stream);

CUstream current_stream(int device);
void set_current_stream(int device, CUstream stream);

// A new stream that is not ordered with the default stream, as all of torch are. It lives as long as the process.
CUstream make_stream(int device, int priority);

// Waits for all that the streams of the device were given, also by others.
void synchronize_device(int device);

}  // namespace ciranda::fakes::torch_cuda
