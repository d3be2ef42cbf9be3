// Call: what a caller asks of the engine, neither copied nor checked. A call that ranks repeat needs neither;
// otherwise make_request() stores it as a Request.
//
// A view: it refers to the caller's memory, and is valid during the call. A plain value, made by the binding on the
// thread of its caller. Called by Engine, RoundsInMemory, DirectRounds, UnnamedRounds, PersistentOp, unnamed.hpp and
// round_data.hpp; made by CallBuilder and translate.hpp; that thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "call/request.hpp"

namespace ciranda {

struct CallTensor {
  DataType dtype = DataType::kFloat32;
  std::span<const std::int64_t> shape = {};
  TensorMemory memory = {};

  // REQUIRES, here and below: the tensor has an agreed signature.
  std::size_t n_bytes() const { return count_of(shape) * size_of(dtype); }
  // Bytes of one row: an element of dimension 0. REQUIRES: not a scalar.
  std::size_t row_bytes() const { return count_of(shape.subspan(1)) * size_of(dtype); }
};

// The fields mean the same as those of Request and Signature. The terms are as used() leaves them.
struct Call : Terms {
  std::string_view name = {};
  bool is_cacheable = true;  // false: calls that share the name, or have none, are numbered
  bool has_room_for_all = false;
  bool needs_all = false;
  std::span<const CallTensor> tensors = {};
  std::span<const std::vector<std::int64_t>> splits = {};
  std::span<const std::int64_t> arguments = {};
  std::uint32_t process_set = 0;
  std::uint32_t lane = 0;
  std::optional<double> weight = {};
  // Used only if the call becomes a request.
  std::int32_t priority = 0;
  Hints hints = {};
};

// Whether the call has this signature. REQUIRES: the call may be repeated.
bool is_of(const Signature& signature, const Call& call);

// Whether the call may be repeated without a request: it has one tensor in host memory and equal splits, no weight, a
// name of its own or none, and what else its collective needs for that (CollectiveInfo::may_be_call).
bool can_be_repeated(const Call& call);

// One tensor of a request.
CallTensor tensor_of(const Request& request, std::size_t tensor);

Request make_request(const Call& call);

// Updates the request of an earlier call for this one, which may differ in memory, priority and hints. Returns false,
// and changes nothing, if it differs in more. REQUIRES: both have the same name, and the request is prepared.
bool make_again(Request& request, const Call& call);

}  // namespace ciranda
