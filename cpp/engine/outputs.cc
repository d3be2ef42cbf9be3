#include "engine/outputs.hpp"

#include <algorithm>
#include <cstring>

#include "request/op_table.hpp"

namespace ciranda {
namespace {

// The caller's memory for an allgather's results, if it was given and fits: it has room for as many rows of each rank
// as this one contributes.
bool take_given(const FirstDims& first_dims, const Request& request, Outputs& outputs) {
  if (!request.has_room_for_all) return false;
  for (std::size_t i = 0; i < first_dims.size(); ++i) {
    const std::vector<std::int64_t>& rows = first_dims[i];
    TensorSignature whole = request.signature.tensors[i];
    std::byte* given = request.memory[i].output;
    const bool is_given = given != nullptr || whole.n_bytes() == 0;
    const auto n_own = whole.shape.front();
    if (!is_given || std::any_of(rows.begin(), rows.end(), [n_own](std::int64_t n) { return n != n_own; })) {
      return false;
    }
    whole.shape.front() *= static_cast<std::int64_t>(rows.size());
    outputs.give(given, whole);
  }
  return true;
}

}  // namespace

void Outputs::give(std::byte* given, const TensorSignature& whole) {
  memory.push_back(given);
  buffers.push_back({std::shared_ptr<std::byte>(std::shared_ptr<std::byte>(), given), whole.n_bytes(), whole.shape});
}

Status Outputs::allocate(const OutputMemory& from, const Request& request, const std::vector<std::int64_t>& n_rows,
                         const Mesh& mesh) {
  for (std::size_t i = 0; i < n_rows.size(); ++i) {
    TensorSignature whole = request.signature.tensors[i];
    whole.shape.front() = n_rows[i];
    buffers.push_back(from.allocate(whole.n_bytes(), whole.shape));
    if (!buffers.back().data) {
      return Status::internal("rank " + std::to_string(mesh.peer(mesh.rank()).rank) +
                              " has no memory for the result of " +
                              std::string(to_string(request.signature.collective)) + " '" + request.name + "', " +
                              std::to_string(whole.n_bytes()) + " bytes");
    }
    memory.push_back(buffers.back().data.get());
  }
  return Status::ok_status();
}

void Outputs::add_received_splits(const FirstDims& rows_from) {
  for (const std::vector<std::int64_t>& rows : rows_from) {
    const std::size_t n_bytes = rows.size() * sizeof(std::int64_t);
    buffers.push_back(allocate_output(n_bytes, {static_cast<std::int64_t>(rows.size())}));
    if (buffers.back().data) std::memcpy(buffers.back().data.get(), rows.data(), n_bytes);
  }
}

std::optional<std::int64_t> sum_of_rows(const std::vector<std::int64_t>& rows) {
  constexpr std::int64_t kMaxRows = std::int64_t{1} << 56;
  std::int64_t sum = 0;
  for (const std::int64_t each : rows) {
    if (each < 0 || each > kMaxRows - sum) return std::nullopt;
    sum += each;
  }
  return sum;
}

Outputs outputs_given(const Request& request) {
  Outputs outputs;
  for (const TensorMemory& given : request.memory) outputs.memory.push_back(given.output);
  return outputs;
}

Result<Outputs> outputs_of_gather(const Request& request, const FirstDims& first_dims, const Mesh& mesh,
                                  const OutputMemory& memory) {
  Outputs outputs;
  if (!info(request.signature.collective).has_root && take_given(first_dims, request, outputs)) return outputs;
  outputs = {};
  std::vector<std::int64_t> n_rows;
  for (const auto& rows : first_dims) n_rows.push_back(*sum_of_rows(rows));
  if (Status status = outputs.allocate(memory, request, n_rows, mesh); !status.ok()) return status;
  return outputs;
}

Result<Outputs> outputs_of_reducescatter(const Request& request, const Mesh& mesh, const OutputMemory& memory) {
  const auto is_given = [](const TensorMemory& given) { return given.output != nullptr; };
  if (std::any_of(request.memory.begin(), request.memory.end(), is_given)) return outputs_given(request);
  Outputs outputs;
  std::vector<std::int64_t> n_rows;
  for (const TensorSignature& tensor : request.signature.tensors) {
    n_rows.push_back(even_splits(tensor.shape.front(), mesh.size())[static_cast<std::size_t>(mesh.rank())]);
  }
  if (Status status = outputs.allocate(memory, request, n_rows, mesh); !status.ok()) return status;
  return outputs;
}

Outputs outputs_of_even_exchange(const Request& request) {
  Outputs outputs;
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    TensorSignature whole = request.signature.tensors[i];
    whole.shape.front() = request.signature.arguments[i];
    outputs.give(request.memory[i].output, whole);
  }
  return outputs;
}

}  // namespace ciranda
