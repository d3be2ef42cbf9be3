#include "request/call.hpp"

#include <algorithm>

namespace ciranda {

bool is_of(const Signature& signature, const Call& call) {
  if (signature.collective != call.collective || signature.tensors.size() != 1) return false;
  const TensorSignature& tensor = signature.tensors.front();
  return tensor.dtype == call.dtype && std::ranges::equal(tensor.shape, call.shape) && signature.op == call.op &&
         signature.root == call.root && signature.prescale == call.prescale && signature.postscale == call.postscale &&
         signature.divides_by_all == call.divides_by_all && signature.arguments.empty() && !signature.is_weighted &&
         !signature.needs_all;
}

Request make_request(const Call& call) {
  Request request;
  request.name = call.name;
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
  request.memory.push_back(call.memory);
  return request;
}

}  // namespace ciranda
