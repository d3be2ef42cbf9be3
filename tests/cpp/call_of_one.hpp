// A call of one tensor, for tests that change its parts.
#pragma once

#include <string_view>

#include "call/call.hpp"

namespace ciranda::testing {

struct CallOfOne : Call {
  explicit CallOfOne(const Terms& terms = {}, std::string_view called = {}, DataType dtype = DataType::kFloat32)
      : Call{terms, called} {
    is_cacheable = !name.empty();
    has_room_for_all = true;  // for the result, if it may be in given memory
    tensor.dtype = dtype;
    tensors = {&tensor, 1};
  }
  CallOfOne(const CallOfOne& other) : Call(other), tensor(other.tensor) { tensors = {&tensor, 1}; }
  CallOfOne& operator=(const CallOfOne& other) {
    static_cast<Call&>(*this) = other;
    tensor = other.tensor;
    tensors = {&tensor, 1};
    return *this;
  }
  ~CallOfOne() = default;

  CallTensor tensor;
};

}  // namespace ciranda::testing
