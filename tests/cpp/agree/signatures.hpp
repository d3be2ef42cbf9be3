// Short ways to write the signatures that tests need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "call/request.hpp"

namespace ciranda::testing {

inline Signature allreduce(Shape shape, DataType dtype = DataType::kFloat32, ReduceOp op = ReduceOp::kSum) {
  Signature signature;
  signature.op = op;
  signature.tensors.push_back({dtype, std::move(shape)});
  return signature;
}

inline Signature allgather(Shape shape, DataType dtype = DataType::kFloat32) {
  Signature signature = allreduce(std::move(shape), dtype);
  signature.collective = Collective::kAllgather;
  return signature;
}

// In equal parts, with memory for the result.
inline Signature even_alltoall(std::int64_t n_rows) {
  Signature signature = allreduce({0, 2});
  signature.collective = Collective::kAlltoall;
  signature.arguments = {n_rows};
  signature.needs_all = true;
  return signature;
}

inline Signature broadcast(Shape shape, int root) {
  Signature signature = allreduce(std::move(shape));
  signature.collective = Collective::kBroadcast;
  signature.root = root;
  return signature;
}

inline Request request(std::string name, Signature signature) {
  Request out;
  out.name = std::move(name);
  out.signature = std::move(signature);
  out.memory.resize(out.signature.tensors.size());
  return out;
}

inline std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

inline Signature barrier() {
  Signature signature;
  signature.collective = Collective::kBarrier;
  return signature;
}

}  // namespace ciranda::testing
