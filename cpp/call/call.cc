#include "call/call.hpp"

#include <algorithm>

namespace ciranda {

namespace {

// If the collective takes splits, a signature with equal parts has its first dimension in `arguments`
// (settle_splits()).
bool has_shape_of(const Signature& signature, const Call& call) {
  const Shape& shape = signature.tensors.front().shape;
  if (!info(call.collective).takes_splits) {
    return std::ranges::equal(shape, call.shape) && signature.arguments.empty() && !signature.needs_all;
  }
  return !call.shape.empty() && signature.needs_all && std::ranges::equal(signature.arguments, call.shape.first(1)) &&
         std::ranges::equal(std::span(shape).subspan(1), call.shape.subspan(1));
}

bool has_room_for_all(const Call& call) {
  return info(call.collective).output == Output::kMayHaveRoom && call.memory.output != nullptr;
}

}  // namespace

bool is_of(const Signature& signature, const Call& call) {
  return static_cast<const Terms&>(call) == signature && signature.tensors.size() == 1 &&
         signature.tensors.front().dtype == call.dtype && !signature.is_weighted && has_shape_of(signature, call);
}

bool can_be_repeated(const Call& call) {
  const CollectiveInfo& row = info(call.collective);
  const bool has_memory = call.memory.input != nullptr && (call.memory.output != nullptr || row.may_lack_output);
  return row.may_be_call && has_memory && !(row.is_along_rows && call.shape.empty());
}

Call call_of(const Request& request) {
  const Terms& terms = request.signature;
  Call call{terms, request.name};
  call.process_set = request.process_set;
  call.lane = request.lane;
  call.priority = request.priority;
  call.hints = request;
  return call;
}

Call call_of(const Request& request, std::size_t tensor) {
  Call call = call_of(request);
  call.dtype = request.signature.tensors[tensor].dtype;
  call.shape = request.signature.tensors[tensor].shape;
  call.memory = request.memory[tensor];
  return call;
}

Request make_request(const Call& call) {
  Request request;
  request.name = call.name;
  request.is_cacheable = !call.name.empty();
  static_cast<Hints&>(request) = call.hints;
  request.process_set = call.process_set;
  request.lane = call.lane;
  request.priority = call.priority;
  static_cast<Terms&>(request.signature) = used(call);
  request.signature.tensors.push_back({call.dtype, Shape(call.shape.begin(), call.shape.end())});
  request.memory.push_back(call.memory);
  request.has_room_for_all = has_room_for_all(call);
  return request;
}

bool make_again(Request& request, const Call& call) {
  const bool is_in_place = request.process_set == call.process_set && request.lane == call.lane;
  const bool is_like = is_in_place && is_of(request.signature, call) && request.refusal.ok() && can_be_repeated(call) &&
                       call.memory.place.is_host() && request.has_room_for_all == has_room_for_all(call);
  if (!is_like) return false;
  static_cast<Hints&>(request) = call.hints;
  request.memory.front() = call.memory;
  request.priority = call.priority;
  return true;
}

}  // namespace ciranda
