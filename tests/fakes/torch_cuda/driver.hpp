// The functions of the fake driver, found in the process's libcuda.so.1, and its contexts.
//
// Threads: any. Errors are c10::Error, which torch raises as RuntimeError.
#pragma once

#include "../caller_kernel.hpp"
#include "../exports.hpp"

namespace ciranda::fakes::torch_cuda {

struct Driver {
  decltype(&cuInit) init;
  decltype(&cuGetErrorName) error_name;
  decltype(&cuDeviceGetCount) device_count;
  decltype(&cuDevicePrimaryCtxRetain) retain_context;
  decltype(&cuCtxSetCurrent) set_context;
  decltype(&cuCtxGetCurrent) context;
  decltype(&cuCtxSynchronize) synchronize;
  decltype(&cuMemAlloc_v2) allocate;
  decltype(&cuMemFree_v2) free;
  decltype(&cuMemAllocAsync) allocate_from_pool;
  decltype(&cuMemFreeAsync) free_to_pool;
  decltype(&cuMemHostAlloc) allocate_pinned;
  decltype(&cuMemFreeHost) free_pinned;
  decltype(&cuMemcpyAsync) copy;
  decltype(&cuStreamCreateWithPriority) create_stream;
  decltype(&cuStreamWaitEvent) wait_event;
  decltype(&cuStreamQuery) query_stream;
  decltype(&cuStreamSynchronize) synchronize_stream;
  decltype(&cuEventCreate) create_event;
  decltype(&cuEventRecord) record_event;
  decltype(&cuEventQuery) query_event;
  decltype(&cuEventDestroy_v2) destroy_event;
  decltype(&fake_cuda_begin_kernel) begin_kernel;
  decltype(&fake_cuda_end_kernel) end_kernel;
  decltype(&fake_cuda_in_kernel) in_kernel;
};

// Loads and initializes it at the first call. Fails if the library is another than the fake.
const Driver& driver();

// Fails with the name of the error, unless `result` is none.
void check(CUresult result, const char* call);

int n_devices();

// Makes the primary context of `device` the calling thread's.
void use_context(int device);

}  // namespace ciranda::fakes::torch_cuda
