// A kernel of another library's, such as the fake NCCL's: its work is a function, which the stream's thread calls when
// the stream has come to it. A graph has it done at each launch.
//
// Threads: any. A library that was not linked with the fake driver finds these by dlsym.
#pragma once

#include <cstddef>

#include "caller_kernel.hpp"
#include "types.hpp"

#pragma GCC visibility push(default)
extern "C" {
namespace ciranda::fakes {

struct LibraryKernel {
  const char* name;
  void* self;
  // Each time that the kernel is given to a stream, by the thread that does so: what run() is called with.
  void* (*begin)(void* self);
  // It may wait for other processes, until fake_cuda_is_over().
  void (*run)(void* begun);
  // It is given to no stream any more.
  void (*forget)(void* self);
};

// Queues the kernel, which touches `touches`, by their address on the device.
CUresult fake_cuda_launch(CUstream stream, const LibraryKernel* kernel, const CallerTouch* touches,
                          std::size_t n_touches);
// Whether the process ends, so that nothing is waited for any more.
bool fake_cuda_is_over();
// Of the GPU whose context is the calling thread's.
CUresult fake_cuda_current_uuid(CUuuid* uuid);

}  // namespace ciranda::fakes
}
#pragma GCC visibility pop
