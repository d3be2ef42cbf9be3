#include "fallback.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/copy.h>
#include <c10/core/DeviceGuard.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allocator.hpp"
#include "boxed.hpp"
#include "current.hpp"
#include "on_host.hpp"
#include "storage.hpp"

namespace ciranda::fakes::torch_cuda {
namespace {

using at::Tensor;
using c10::Argument;
using c10::Device;
using c10::FunctionSchema;
using c10::IValue;
using c10::Stack;

bool is_on_device(const Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); }

// Where an operator runs: where its first tensor of the device is, or what it is asked for.
std::optional<Device> device_of(const Stack& arguments) {
  std::optional<Device> device;
  for (const IValue& each : arguments) {
    for_each_tensor(each, [&](const Tensor& tensor) {
      if (!device && is_on_device(tensor)) device = tensor.device();
    });
  }
  for (const IValue& each : arguments) {
    if (!device && each.isDevice() && each.toDevice().is_cuda()) device = each.toDevice();
  }
  if (device && !device->has_index()) device = Device(c10::kCUDA, static_cast<c10::DeviceIndex>(current_device()));
  return device;
}

std::string name_of(const FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

// An output that the operator has made larger, or given another shape.
struct Changed {
  Tensor tensor;
  Tensor on_host;
  bool has_moved;
};

class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack arguments, Device device)
      : op_(op), arguments_(std::move(arguments)), device_(device), kernel_(name_of(op.schema()), device) {}

  Stack run() {
    const auto& schema = op_.schema();
    for (std::size_t i = 0; i < arguments_.size(); ++i) touch(arguments_[i], writes(schema.arguments()[i]));
    kernel_.begin();
    Stack stack = arguments_;
    for (std::size_t i = 0; i < stack.size(); ++i) to_host(stack[i], writes(schema.arguments()[i]));
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      op_.callBoxed(stack);
    }
    kernel_.end();
    apply_changes();
    for (std::size_t i = 0; i < stack.size(); ++i) take_back(stack[i], schema.returns()[i]);
    return stack;
  }

 private:
  void touch(const IValue& value, bool writes) {
    for_each_tensor(value, [&](const Tensor& each) {
      if (is_on_device(each)) kernel_.touch(each, writes);
    });
  }

  void to_host(IValue& value, bool writes) {
    if (value.isDevice()) value = Device(c10::kCPU);
    change_tensors(value, [&](const Tensor& each) {
      if (!is_on_device(each)) return each;
      Tensor on_host = kernel_.on_host(each);
      if (writes) outputs_.push_back({each, on_host, false});
      return on_host;
    });
  }

  void apply_changes() {
    for (const Changed& each : outputs_) {
      if (each.tensor.sizes() == each.on_host.sizes() && each.tensor.strides() == each.on_host.strides()) continue;
      const Tensor grown = to_device(each.on_host, device_);
      each.tensor.unsafeGetTensorImpl()->set_sizes_and_strides(grown.sizes(), grown.strides(), 0);
      grow_storage(each.tensor);
      Tensor to = each.tensor;
      copy(to, grown, true);
    }
  }

  // A tensor of the host becomes one of the device.
  void take_back(IValue& value, const Argument& returned) {
    if (const auto argument = argument_of(op_.schema(), returned)) {
      value = arguments_[*argument];
      return;
    }
    change_tensors(value, [&](const Tensor& each) {
      if (!each.defined() || !each.device().is_cpu()) return each;
      const c10::Storage* const storage = each.has_storage() ? kernel_.storage_of(each) : nullptr;
      return storage == nullptr ? to_device(each, device_) : over(*storage, each);
    });
    if (!value.isTensor() && !value.isTensorList() && !value.isNone()) learn();
  }

  // The host has read a value, for which it waited.
  void learn() { check(driver().synchronize_stream(current_stream(device_.index())), "cuStreamSynchronize"); }

  const c10::OperatorHandle& op_;
  const Stack arguments_;
  const Device device_;
  OnHost kernel_;
  std::vector<Changed> outputs_;
};

bool can_be_copied_by_driver(const Tensor& to, const Tensor& from) {
  return to.sizes() == from.sizes() && to.scalar_type() == from.scalar_type() && to.is_contiguous() &&
         from.is_contiguous() && !to.is_neg() && !from.is_neg() && !to.is_conj() && !from.is_conj();
}

// Between pinned memory and the device, in the order of the stream.
void copy_by_driver(const Tensor& to, const Tensor& from, Device device) {
  use_context(device.index());
  const auto number = [](const void* address) { return reinterpret_cast<CUdeviceptr>(address); };
  check(driver().copy(number(to.mutable_data_ptr()), number(from.const_data_ptr()), from.nbytes(),
                      current_stream(device.index())),
        "cuMemcpyAsync");
}

void copy_in_kernel(const Tensor& to, const Tensor& from, Device device) {
  OnHost kernel("copy_", device);
  if (is_on_device(from)) kernel.touch(from, false);
  if (is_on_device(to)) kernel.touch(to, true);
  kernel.begin();
  const at::AutoDispatchBelowADInplaceOrView below;
  Tensor to_host = is_on_device(to) ? kernel.on_host(to) : to;
  to_host.copy_(is_on_device(from) ? kernel.on_host(from) : from);
}

// What the stream `later` is given comes after all that `earlier` was given.
void order(int earlier, int later) {
  CUevent event = nullptr;
  use_context(earlier);
  check(driver().create_event(&event, cuda::kEventDisableTiming), "cuEventCreate");
  check(driver().record_event(event, current_stream(earlier)), "cuEventRecord");
  use_context(later);
  check(driver().wait_event(current_stream(later), event, 0), "cuStreamWaitEvent");
  check(driver().destroy_event(event), "cuEventDestroy");
}

}  // namespace

void run_on_host(const c10::OperatorHandle& op, Stack* stack) {
  const std::size_t n_arguments = op.schema().arguments().size();
  const auto begin = stack->end() - static_cast<std::ptrdiff_t>(n_arguments);
  Stack arguments(begin, stack->end());
  stack->erase(begin, stack->end());
  const auto device = device_of(arguments);
  TORCH_CHECK(device, name_of(op.schema()), ": no argument is of the device");
  const c10::DeviceGuard guard(*device);
  for (IValue& each : Call(op, std::move(arguments), *device).run()) stack->push_back(std::move(each));
}

Tensor& copy(Tensor& to, const Tensor& from, bool non_blocking) {
  if (to.is_same(from)) return to;
  const Device device = is_on_device(from) ? from.device() : to.device();
  const c10::DeviceGuard guard(device);
  const bool is_across = is_on_device(from) && is_on_device(to) && from.device() != to.device();
  if (is_across) order(to.device().index(), device.index());
  const Tensor* const on_host = is_on_device(from) ? (is_on_device(to) ? nullptr : &to) : &from;
  const bool has_pinned = on_host != nullptr && is_pinned(on_host->const_data_ptr());
  const bool is_by_driver = has_pinned && can_be_copied_by_driver(to, from);
  if (is_by_driver) {
    copy_by_driver(to, from, device);
  } else {
    copy_in_kernel(to, from, device);
  }
  if (is_across) order(device.index(), to.device().index());
  if (on_host != nullptr && !(non_blocking && is_by_driver)) {
    check(driver().synchronize_stream(current_stream(device.index())), "cuStreamSynchronize");
  }
  return to;
}

}  // namespace ciranda::fakes::torch_cuda
