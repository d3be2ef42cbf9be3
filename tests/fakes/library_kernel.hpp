// A kernel of another library's, such as the fake NCCL's: its work is a function, which the stream's thread calls when
// the stream has come to it.
//
// Threads: any. A library that was not linked with the fake driver finds these by dlsym.
#pragma once

#include <cstddef>

#include "caller_kernel.hpp"
#include "types.hpp"

#pragma GCC visibility push(default)
extern "C" {
namespace ciranda::fakes {

// Queues run(argument), which touches `touches`, by their address on the device. It may wait for other processes, until
// fake_cuda_is_over().
CUresult fake_cuda_launch(CUstream stream, const char* name, const CallerTouch* touches, std::size_t n_touches,
                          void (*run)(void* argument), void* argument);
// Whether the process ends, so that nothing is waited for any more.
bool fake_cuda_is_over();
// Of the GPU whose context is the calling thread's.
CUresult fake_cuda_current_uuid(CUuuid* uuid);

}  // namespace ciranda::fakes
}
#pragma GCC visibility pop
