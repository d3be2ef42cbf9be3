#include "call/call.hpp"

#include <algorithm>

namespace ciranda {

namespace {

// If the collective takes splits, a signature with equal parts has its first dimension in `arguments`
// (settle_splits()).
bool has_shape_of(const Signature& signature, const Call& call) {
  const Shape& shape = signature.tensors.front().shape;
  const auto of_call = call.tensors.front().shape;
  if (!info(call.collective).takes_splits) {
    return std::ranges::equal(shape, of_call) && signature.arguments.empty() && !signature.needs_all;
  }
  return !of_call.empty() && signature.needs_all && std::ranges::equal(signature.arguments, of_call.first(1)) &&
         std::ranges::equal(std::span(shape).subspan(1), of_call.subspan(1));
}

// Whether the memory of the only tensor is all that a repeated call needs.
bool has_memory(const Call& call) {
  const CollectiveInfo& facts = info(call.collective);
  const TensorMemory& memory = call.tensors.front().memory;
  if (memory.input == nullptr || !memory.place.is_host()) return false;
  if (memory.output == nullptr) return facts.may_lack_output && !call.has_room_for_all;
  return facts.output != Output::kMayHaveRoom || call.has_room_for_all;
}

}  // namespace

bool is_of(const Signature& signature, const Call& call) {
  return static_cast<const Terms&>(call) == signature && signature.tensors.size() == 1 &&
         signature.tensors.front().dtype == call.tensors.front().dtype && !signature.is_weighted &&
         has_shape_of(signature, call);
}

bool can_be_repeated(const Call& call) {
  const CollectiveInfo& facts = info(call.collective);
  if (!facts.may_be_call || call.tensors.size() != 1 || call.is_cacheable == call.name.empty()) return false;
  const CallTensor& tensor = call.tensors.front();
  const bool has_more = call.needs_all || call.weight || !call.arguments.empty() || !call.splits.empty();
  return !has_more && has_memory(call) && !(facts.is_along_rows && tensor.shape.empty());
}

CallTensor tensor_of(const Request& request, std::size_t tensor) {
  const TensorSignature& signature = request.signature.tensors[tensor];
  return {.dtype = signature.dtype, .shape = signature.shape, .memory = request.memory[tensor]};
}

Request make_request(const Call& call) {
  Request request;
  request.name = call.name;
  request.is_cacheable = call.is_cacheable;
  static_cast<Hints&>(request) = call.hints;
  request.process_set = call.process_set;
  request.lane = call.lane;
  request.priority = call.priority;
  request.has_room_for_all = call.has_room_for_all;
  static_cast<Terms&>(request.signature) = used(call);
  request.signature.needs_all = call.needs_all;
  request.splits.assign(call.splits.begin(), call.splits.end());
  request.signature.arguments.assign(call.arguments.begin(), call.arguments.end());
  if (call.weight && info(call.collective).is_reduction) {
    request.signature.is_weighted = true;
    request.weight = *call.weight;
  }
  for (const CallTensor& tensor : call.tensors) {
    request.signature.tensors.push_back({tensor.dtype, Shape(tensor.shape.begin(), tensor.shape.end())});
    request.memory.push_back(tensor.memory);
  }
  return request;
}

bool make_again(Request& request, const Call& call) {
  const bool is_in_place = request.process_set == call.process_set && request.lane == call.lane;
  const bool is_like = is_in_place && can_be_repeated(call) && is_of(request.signature, call) && request.refusal.ok() &&
                       request.has_room_for_all == call.has_room_for_all;
  if (!is_like) return false;
  static_cast<Hints&>(request) = call.hints;
  request.memory.front() = call.tensors.front().memory;
  request.priority = call.priority;
  request.home = kHostHome;  // calls in host memory
  return true;
}

}  // namespace ciranda
