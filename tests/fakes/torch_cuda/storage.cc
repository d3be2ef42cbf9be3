#include "storage.hpp"

#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <utility>

#include "allocator.hpp"

namespace ciranda::fakes::torch_cuda {

void resize_storage(c10::StorageImpl& storage, std::size_t n_bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceGuard guard(storage.device());
  auto memory = device_allocator().allocate(n_bytes);
  const std::size_t n_kept = std::min(n_bytes, storage.nbytes());
  if (n_kept != 0) device_allocator().copy_data(memory.get(), storage.data(), n_kept);
  storage.set_data_ptr_noswap(std::move(memory));
  storage.set_nbytes(n_bytes);
}

void grow_storage(const at::Tensor& tensor) {
  const std::size_t n_needed = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                                static_cast<std::size_t>(tensor.storage_offset()));
  if (tensor.numel() == 0 || n_needed <= tensor.storage().nbytes()) return;
  resize_storage(*tensor.storage().unsafeGetStorageImpl(), n_needed);
}

}  // namespace ciranda::fakes::torch_cuda
