// Operators of the CPU as kernels of the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>

namespace ciranda::fakes::torch_cuda {

// Runs `op` of the CPU on the memory of the tensors of the device among its arguments, in one kernel on the current
// stream, and copies what else it returns to the device. The caller is blocked until the stream has come to it, and
// knows of the stream's work only if `op` returns a value of the host.
void run_on_host(const c10::OperatorHandle& op, c10::Stack* stack);

// Tensor.copy_. Between host and device the caller waits for it, unless it need not and the host's memory is pinned.
at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking);

}  // namespace ciranda::fakes::torch_cuda
