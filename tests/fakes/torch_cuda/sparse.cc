// Sparse (COO) tensors of the device: their indices and values are tensors of it. Operators that compute with them
// have the CPU do so, on copies, for which the host waits.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/values_native.h>
#include <torch/library.h>

#include <cstddef>
#include <optional>

#include "boxed.hpp"
#include "on_host.hpp"

namespace ciranda::fakes::torch_cuda {
namespace {

using at::Tensor;
using c10::IValue;
using c10::Stack;

Tensor to_host(const Tensor& tensor) {
  if (!tensor.is_sparse()) return tensor.cpu();
  const Tensor made = at::_sparse_coo_tensor_unsafe(tensor._indices().cpu(), tensor._values().cpu(), tensor.sizes(),
                                                    tensor.options().device(c10::kCPU));
  return made._coalesced_(tensor.is_coalesced());
}

void run_on_copies(const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const std::size_t n_arguments = schema.arguments().size();
  const auto begin = stack->end() - static_cast<std::ptrdiff_t>(n_arguments);
  const Stack arguments(begin, stack->end());
  stack->erase(begin, stack->end());
  std::optional<c10::Device> device;
  Stack copies = arguments;
  for (IValue& each : copies) {
    change_tensors(each, [&](const Tensor& tensor) {
      if (!tensor.defined() || !tensor.is_cuda()) return tensor;
      device = tensor.device();
      return to_host(tensor);
    });
  }
  const Stack given = copies;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(copies);
  }
  for (std::size_t i = 0; i < n_arguments; ++i) {
    if (!writes(schema.arguments()[i]) || !arguments[i].isTensor()) continue;
    arguments[i].toTensor().copy_(to_device(given[i].toTensor(), *device));
  }
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (const auto argument = argument_of(schema, schema.returns()[i])) {
      stack->push_back(arguments[*argument]);
      continue;
    }
    change_tensors(copies[i],
                   [&](const Tensor& tensor) { return tensor.defined() ? to_device(tensor, *device) : tensor; });
    stack->push_back(copies[i]);
  }
}

TORCH_LIBRARY_IMPL(aten, SparseCUDA, m) {
  m.impl("empty.memory_format", &at::native::empty_sparse_symint);
  m.impl("empty_like", &at::native::empty_like_sparse_coo);
  m.impl("_sparse_coo_tensor_with_dims", &at::native::new_with_dims_sparse);
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", &at::native::new_with_dims_and_tensor_sparse_symint);
  m.impl("sparse_resize_", &at::native::sparse_resize_);
  m.impl("sparse_resize_and_clear_", &at::native::sparse_resize_and_clear_);
  m.impl("sparse_dim", &at::native::sparse_dim_sparse);
  m.impl("dense_dim", &at::native::dense_dim_sparse);
  m.impl("_nnz", &at::native::_nnz_sparse);
  m.impl("is_coalesced", &at::native::is_coalesced_sparse);
  m.impl("_coalesced_", &at::native::_coalesced_sparse_);
  m.impl("_indices", &at::native::_indices_sparse);
  m.impl("_values", &at::native::_values_sparse);
  m.impl("indices", &at::native::indices_sparse);
  m.impl("values", &at::native::values_sparse);
  m.impl("clone", &at::native::clone_sparse);
  m.impl("copy_", &at::native::copy_sparse_wrapper_);
  m.impl("copy_sparse_to_sparse_", &at::native::copy_sparse_);
}

TORCH_LIBRARY_IMPL(_, SparseCUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_copies>()); }

}  // namespace
}  // namespace ciranda::fakes::torch_cuda
