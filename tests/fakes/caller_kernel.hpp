// A kernel whose work the calling thread does: a test that stands for a framework computes with a library of the host
// on memory of the device, in the order of a stream, as the framework's own kernel would.
//
// Threads: any; who began a kernel ends it.
#pragma once

#include <cstddef>

#include "types.hpp"

#pragma GCC visibility push(default)
extern "C" {
namespace ciranda::fakes {

struct CallerTouch {
  CUdeviceptr begin;
  std::size_t n_bytes;
  bool writes;
};

// Queues a kernel that touches `touches` and returns when `stream` has come to it, with what ends it in `*kernel`. The
// stream stands still meanwhile. The host does not know by that of the end of what came before it.
CUresult fake_cuda_begin_kernel(void** kernel, CUstream stream, const char* name, const CallerTouch* touches,
                                std::size_t n_touches);
// The stream goes on.
void fake_cuda_end_kernel(void* kernel);

// Where the calling thread finds device memory while a kernel of its own runs.
void* fake_cuda_in_kernel(CUdeviceptr address);

}  // namespace ciranda::fakes
}
#pragma GCC visibility pop
