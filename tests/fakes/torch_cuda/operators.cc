// Operators of torch on tensors of the device. Those that make a tensor or a view of one are here; all others run those
// of the CPU, as kernels on the current stream.
#include <ATen/EmptyTensor.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "allocator.hpp"
#include "current.hpp"
#include "fallback.hpp"
#include "storage.hpp"

namespace ciranda::fakes::torch_cuda {
namespace {

using at::IntArrayRef;
using at::Tensor;
using c10::Device;
using c10::Layout;
using c10::MemoryFormat;
using c10::ScalarType;
using std::optional;

const c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

Device or_current(optional<Device> device) {
  if (device && device->has_index()) return *device;
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(current_device())};
}

Tensor empty(IntArrayRef size, optional<ScalarType> type, optional<Layout>, optional<Device> device, optional<bool>,
             optional<MemoryFormat> format) {
  const c10::DeviceGuard guard(or_current(device));
  return at::detail::empty_generic(size, &device_allocator(), kKeys, c10::dtype_or_default(type), format);
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, optional<ScalarType> type, optional<Layout>,
                     optional<Device> device, optional<bool>) {
  const c10::DeviceGuard guard(or_current(device));
  return at::detail::empty_strided_generic(size, stride, &device_allocator(), kKeys, c10::dtype_or_default(type));
}

Tensor& set_storage(Tensor& self, at::Storage source, std::int64_t offset, IntArrayRef size, IntArrayRef stride) {
  auto* const tensor = self.unsafeGetTensorImpl();
  tensor->set_storage_keep_dtype(std::move(source));
  tensor->set_storage_offset(offset);
  if (stride.data() == nullptr) {
    tensor->set_sizes_contiguous(size);
  } else {
    tensor->set_sizes_and_strides(size, stride);
  }
  grow_storage(self);
  return self;
}

Tensor& set_empty(Tensor& self) {
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, device_allocator().allocate(0), &device_allocator(), true);
  return set_storage(self, std::move(none), 0, {0}, {});
}

const Tensor& resize(const Tensor& self, IntArrayRef size, optional<MemoryFormat> format) {
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  if (format) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  grow_storage(self);
  return self;
}

void record_stream_of(Tensor& self, c10::Stream stream) { record_stream(self.storage().data_ptr(), handle_of(stream)); }

torch::CppFunction on_host() { return torch::CppFunction::makeFromBoxedFunction<&run_on_host>(); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("is_set_to", &at::native::is_set_to);
  m.impl("set_", &set_empty);
  m.impl("set_.source_Storage", &at::native::set_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("resize_", &resize);
  m.impl("record_stream", &record_stream_of);
  m.impl("copy_", &copy);
  // These choose among the parts that each type of device has, of which some are CUDA's only.
  for (const char* name : {"convolution", "convolution_backward"}) m.impl(name, on_host());
}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(on_host()); }

// Operators of the CPU that have a kernel for all devices too, which a fallback does not come before.
torch::Library& those_with_a_choice() {
  using c10::DispatchKey;
  static torch::Library kLibrary(torch::Library::IMPL, "aten", DispatchKey::CUDA, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || name.name.rfind("aten::", 0) != 0 || op->hasKernelForDispatchKey(DispatchKey::CUDA)) continue;
    if (op->hasKernelForDispatchKey(DispatchKey::CPU) &&
        op->hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd)) {
      kLibrary.impl(c10::toString(name).c_str(), on_host());
    }
  }
  return kLibrary;
}
const torch::Library& kThoseWithAChoice = those_with_a_choice();

// Attention in the operators that it is composed of.
const bool kHasAttention = [] {
  const auto choose = [](const Tensor&, const Tensor&, const Tensor&, const optional<Tensor>&, double, bool,
                         optional<double>, bool) { return static_cast<std::int64_t>(at::SDPBackend::math); };
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(+choose);
  return true;
}();

}  // namespace
}  // namespace ciranda::fakes::torch_cuda
