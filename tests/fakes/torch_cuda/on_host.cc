#include "on_host.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "allocator.hpp"
#include "current.hpp"

namespace ciranda::fakes::torch_cuda {
namespace {

CUdeviceptr number_of(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

struct Dimension {
  std::int64_t stride_bytes;
  std::int64_t size;
};

// The dimensions along which a tensor has other elements, from the innermost on.
std::vector<Dimension> dimensions_of(const at::Tensor& tensor) {
  std::vector<Dimension> dimensions;
  const auto n_element_bytes = static_cast<std::int64_t>(tensor.itemsize());
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) > 1 && tensor.stride(i) != 0) {
      dimensions.push_back({tensor.stride(i) * n_element_bytes, tensor.size(i)});
    }
  }
  const auto is_inner = [](const Dimension& a, const Dimension& b) { return a.stride_bytes < b.stride_bytes; };
  std::stable_sort(dimensions.begin(), dimensions.end(), is_inner);
  return dimensions;
}

constexpr std::int64_t kMostRanges = 4096;

// Appends what the elements of a tensor take, in ranges as long as possible. Of a tensor of very many it is one range
// with what lies between them.
void append_ranges(const at::Tensor& tensor, bool writes, std::vector<CallerTouch>& ranges) {
  if (tensor.numel() == 0) return;
  auto outer = dimensions_of(tensor);
  std::int64_t n_bytes = static_cast<std::int64_t>(tensor.itemsize());
  while (!outer.empty() && outer.front().stride_bytes <= n_bytes) {
    n_bytes += outer.front().stride_bytes * (outer.front().size - 1);
    outer.erase(outer.begin());
  }
  std::int64_t n_ranges = 1;
  for (const Dimension& each : outer) n_ranges *= each.size;
  if (n_ranges > kMostRanges) {
    for (const Dimension& each : std::exchange(outer, {})) n_bytes += each.stride_bytes * (each.size - 1);
  }
  std::vector<std::int64_t> offsets = {0};
  for (const Dimension& each : outer) {
    const std::size_t n_before = offsets.size();
    for (std::int64_t i = 1; i < each.size; ++i) {
      for (std::size_t k = 0; k < n_before; ++k) offsets.push_back(offsets[k] + i * each.stride_bytes);
    }
  }
  const CUdeviceptr first = number_of(tensor.const_data_ptr());
  for (std::int64_t offset : offsets) {
    ranges.push_back({first + static_cast<std::uint64_t>(offset), static_cast<std::size_t>(n_bytes), writes});
  }
}

at::Tensor make_tensor(const c10::Storage& storage, c10::DispatchKey key, const at::Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return tensor;
}

}  // namespace

OnHost::OnHost(std::string name, c10::Device device) : name_(std::move(name)), device_(device) {}

OnHost::~OnHost() { end(); }

void OnHost::touch(const at::Tensor& tensor, bool writes) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided, name_,
                              ": the fake torch.cuda has strided tensors only");
  append_ranges(tensor, writes, touches_);
}

void OnHost::begin() {
  use_context(device_.index());
  check(
      driver().begin_kernel(&kernel_, current_stream(device_.index()), name_.c_str(), touches_.data(), touches_.size()),
      name_.c_str());
}

at::Tensor OnHost::on_host(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  auto at = shared_.find(storage.unsafeGetStorageImpl());
  if (at == shared_.end()) {
    void* const memory = storage.data() == nullptr ? nullptr : driver().in_kernel(number_of(storage.data()));
    // An operator that makes its output larger gives it new memory of the host.
    c10::Storage host(c10::Storage::use_byte_size_t(), storage.nbytes(), c10::DataPtr(memory, c10::kCPU),
                      c10::GetCPUAllocator(), true);
    at = shared_.emplace(storage.unsafeGetStorageImpl(), Shared{storage, std::move(host)}).first;
  }
  auto made = make_tensor(at->second.host, c10::DispatchKey::CPU, tensor);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}

void OnHost::end() {
  if (kernel_ != nullptr) driver().end_kernel(std::exchange(kernel_, nullptr));
}

const c10::Storage* OnHost::storage_of(const at::Tensor& on_host) const {
  for (const auto& [device, shared] : shared_) {
    if (shared.host.unsafeGetStorageImpl() == on_host.storage().unsafeGetStorageImpl()) return &shared.device;
  }
  return nullptr;
}

at::Tensor over(const c10::Storage& storage, const at::Tensor& like) {
  return make_tensor(storage, c10::DispatchKey::CUDA, like);
}

at::Tensor to_device(const at::Tensor& tensor, c10::Device device) {
  if (tensor.is_sparse()) {
    const at::Tensor made =
        at::_sparse_coo_tensor_unsafe(to_device(tensor._indices(), device), to_device(tensor._values(), device),
                                      tensor.sizes(), tensor.options().device(device));
    return made._coalesced_(tensor.is_coalesced());
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided, "the fake torch.cuda has no such tensors");
  const c10::DeviceGuard guard(device);
  const at::Tensor from = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  const at::Tensor to =
      at::detail::empty_strided_generic(from.sizes(), from.strides(), &device_allocator(),
                                        c10::DispatchKeySet(c10::DispatchKey::CUDA), from.scalar_type());
  if (to.numel() == 0) return to;
  OnHost kernel("output", device);
  kernel.touch(to, true);
  kernel.begin();
  std::memcpy(kernel.on_host(to).mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  return to;
}

}  // namespace ciranda::fakes::torch_cuda
