// Memory of tensors of the device that becomes more or less.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace ciranda::fakes::torch_cuda {

// Gives a storage other memory, with the bytes that both have.
void resize_storage(c10::StorageImpl& storage, std::size_t n_bytes);

// Gives the storage of a tensor as much memory as its shape needs, if it has less.
void grow_storage(const at::Tensor& tensor);

}  // namespace ciranda::fakes::torch_cuda
