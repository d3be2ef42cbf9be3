// Call: a call in a lane, with one tensor in host memory, as its caller made it: nothing is copied, and nothing is
// checked. Where its signature is one that was agreed on before, it needs neither; otherwise a Request is made of it.
// Of the collectives that may be such (CollectiveInfo::may_be_call), with splits in equal parts.
//
// Views of the caller's memory, valid for the time of the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "call/request.hpp"

namespace ciranda {

struct Call : Terms {
  std::string_view name = {};  // empty: none
  DataType dtype = DataType::kFloat32;
  std::span<const std::int64_t> shape = {};
  // An output has room for as many rows of each rank as this one contributes, where they are joined; for as many rows
  // as the input has, where they are split. Null: the engine allocates (CollectiveInfo::may_lack_output).
  TensorMemory memory = {};
  // As in Request:
  std::uint32_t process_set = 0;
  std::uint32_t lane = 0;
  // Only one that becomes a request has a use for these.
  std::int32_t priority = 0;
  Hints hints = {};

  // REQUIRES, here and below: the signature was agreed on.
  std::size_t n_bytes() const { return count_of(shape) * size_of(dtype); }
  // Of one element of dimension 0. REQUIRES: not a scalar.
  std::size_t row_bytes() const { return count_of(shape.subspan(1)) * size_of(dtype); }
};

// Whether the signature is that of the call.
bool is_of(const Signature& signature, const Call& call);

// Whether it may be repeated: it is of a collective that may, with the rows and the memory that this needs.
bool can_be_repeated(const Call& call);

// Of a request: without its tensors; with one of them.
Call call_of(const Request& request);
Call call_of(const Request& request, std::size_t tensor);

Request make_request(const Call& call);

// Makes the request of a call that of a later one, which differs by memory, priority and hints at most. False, and
// nothing is changed: it differs by more. REQUIRES: both are of the same name, and the request is prepared.
bool make_again(Request& request, const Call& call);

}  // namespace ciranda
