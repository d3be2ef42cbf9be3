// The arguments of an operator, and what it returns, as they lie on the dispatcher's stack.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace ciranda::fakes::torch_cuda {

// Calls change(tensor) for each tensor in `value`, and puts what it returns in its place.
template <typename Change>
void change_tensors(c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    value = change(value.toTensor());
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> changed;
    for (const at::Tensor& each : value.toTensorVector()) changed.push_back(change(each));
    value = changed;
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> changed;
    for (const std::optional<at::Tensor> each : value.toOptionalTensorList()) {
      changed.push_back(each ? std::optional(change(*each)) : std::nullopt);
    }
    value = changed;
  }
}

template <typename Function>
void for_each_tensor(const c10::IValue& value, const Function& function) {
  c10::IValue same = value;
  change_tensors(same, [&](const at::Tensor& each) {
    function(each);
    return each;
  });
}

inline bool writes(const c10::Argument& argument) {
  const auto* const alias = argument.alias_info();
  // Those of native_batch_norm, which its schema does not tell.
  const bool is_running = argument.name() == "running_mean" || argument.name() == "running_var";
  return (alias != nullptr && alias->isWrite()) || is_running;
}

// The argument that a return value is, for operators that return what they write.
inline std::optional<std::size_t> argument_of(const c10::FunctionSchema& schema, const c10::Argument& returned) {
  const auto* const alias = returned.alias_info();
  if (alias == nullptr || !alias->isWrite()) return std::nullopt;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* const other = schema.arguments()[i].alias_info();
    if (other != nullptr && *other == *alias) return i;
  }
  return std::nullopt;
}

}  // namespace ciranda::fakes::torch_cuda
