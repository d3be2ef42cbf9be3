// Call: a call in a lane, with one tensor in host memory, as the caller made it, neither copied nor checked. If it
// matches an agreed signature it needs neither; otherwise make_request() converts it. For collectives with
// CollectiveInfo::may_be_call, and only with equal splits.
//
// It refers to the caller's memory, and is valid during the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "call/request.hpp"

namespace ciranda {

struct Call : Terms {
  std::string_view name = {};  // empty: no name
  DataType dtype = DataType::kFloat32;
  std::span<const std::int64_t> shape = {};
  // If rows are joined, an output has room for as many rows of each rank as this rank contributes; if they are split,
  // for as many rows as the input has. Null: the engine allocates (CollectiveInfo::may_lack_output).
  TensorMemory memory = {};
  // As in Request.
  std::uint32_t process_set = 0;
  std::uint32_t lane = 0;
  // Used only if the call becomes a request.
  std::int32_t priority = 0;
  Hints hints = {};

  // REQUIRES, here and below: the call matches an agreed signature.
  std::size_t n_bytes() const { return count_of(shape) * size_of(dtype); }
  // Bytes of one row: an element of dimension 0. REQUIRES: not a scalar.
  std::size_t row_bytes() const { return count_of(shape.subspan(1)) * size_of(dtype); }
};

// Whether the call has this signature.
bool is_of(const Signature& signature, const Call& call);

// Whether the call may be repeated: its collective allows it, and it has the rows and the memory that this needs.
bool can_be_repeated(const Call& call);

// The call of a request: without tensors, or with one of them.
Call call_of(const Request& request);
Call call_of(const Request& request, std::size_t tensor);

Request make_request(const Call& call);

// Updates the request of an earlier call for this one, which may differ in memory, priority and hints. Returns false,
// and changes nothing, if it differs in more. REQUIRES: both have the same name, and the request is prepared.
bool make_again(Request& request, const Call& call);

}  // namespace ciranda
