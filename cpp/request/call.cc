#include "request/call.hpp"

#include <algorithm>

namespace ciranda {

namespace {

// An alltoall's first dimension is among the arguments (settle_splits()), if equal parts are what was agreed on.
bool has_shape_of(const Signature& signature, const Call& call) {
  const Shape& shape = signature.tensors.front().shape;
  if (call.collective != Collective::kAlltoall) {
    return std::ranges::equal(shape, call.shape) && signature.arguments.empty() && !signature.needs_all;
  }
  return !call.shape.empty() && signature.needs_all && std::ranges::equal(signature.arguments, call.shape.first(1)) &&
         std::ranges::equal(std::span(shape).subspan(1), call.shape.subspan(1));
}

}  // namespace

bool is_of(const Signature& signature, const Call& call) {
  return signature.collective == call.collective && signature.tensors.size() == 1 &&
         signature.tensors.front().dtype == call.dtype && signature.op == call.op && signature.root == call.root &&
         signature.prescale == call.prescale && signature.postscale == call.postscale &&
         signature.divides_by_all == call.divides_by_all && !signature.is_weighted && has_shape_of(signature, call);
}

Request make_request(const Call& call) {
  Request request;
  request.name = call.name;
  request.is_cacheable = !call.name.empty();
  request.is_awaited = true;
  request.priority = call.priority;
  Signature& signature = request.signature;
  signature.collective = call.collective;
  signature.op = call.op;
  signature.root = call.root;
  signature.prescale = call.prescale;
  signature.postscale = call.postscale;
  signature.divides_by_all = call.divides_by_all;
  signature.tensors.push_back({call.dtype, Shape(call.shape.begin(), call.shape.end())});
  request.memory.push_back({call.memory.input, call.memory.output});
  const bool may_have_room = call.collective == Collective::kAllgather || call.collective == Collective::kAlltoall;
  request.has_room_for_all = may_have_room && call.memory.output != nullptr;
  return request;
}

}  // namespace ciranda
