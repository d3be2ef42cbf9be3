// The allocator of device memory. Like torch's it keeps what was freed, and gives it at once to the next allocation of
// the same size on the same stream: whoever still uses it on another stream, without Tensor.record_stream, is found.
//
// Threads: any.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

#include "driver.hpp"

namespace ciranda::fakes::torch_cuda {

c10::Allocator& device_allocator();
c10::Allocator& pinned_allocator();
bool is_pinned(const void* address);

// The memory is used on `stream` as well: once freed, it waits for what that was given until then.
void record_stream(const c10::DataPtr& memory, CUstream stream);

// Gives what is free back to the driver, once all streams are done with it.
void empty_cache();

std::size_t n_allocated_bytes(int device);

}  // namespace ciranda::fakes::torch_cuda
