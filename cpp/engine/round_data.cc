#include "engine/round_data.hpp"

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "engine/outputs.hpp"
#include "engine/work.hpp"
#include "negotiate/round_places.hpp"

namespace ciranda {
namespace {

// Then splits travel before the tensors, which may have other rows for every member with every call.
bool has_own_splits(const Signature& signature) {
  return signature.collective == Collective::kAlltoall && !has_fixed_rows(signature);
}

DirectTensor tensor_of(const Request& request, std::size_t i, const FirstDims* first_dims, const Mesh& mesh) {
  const Signature& signature = request.signature;
  const TensorSignature& tensor = signature.tensors[i];
  DirectTensor made{.collective = signature.collective,
                    .reduction = {tensor.dtype, signature.op, signature.prescale, signature.postscale, mesh.size(), {}},
                    .input = request.memory[i].input,
                    .count = static_cast<std::size_t>(count_of(tensor.shape))};
  made.n_bytes = made.count * size_of(tensor.dtype);
  if (info(signature.collective).is_along_rows) {
    made.n_rows = tensor.shape.front();
    made.row_bytes = tensor.row_bytes();
  }
  if (signature.collective == Collective::kAllgather && first_dims != nullptr) made.rows_of = (*first_dims)[i];
  if (signature.collective != Collective::kAlltoall) return made;
  made.n_bytes = bytes_of_rows(request.splits[i], tensor);
  if (has_own_splits(signature)) {
    made.own_splits = request.splits[i];
  } else {
    made.n_rows = signature.arguments[i];
  }
  return made;
}

std::byte* write_splits(const Request& request, std::byte* to) {
  std::byte* at = to;
  for (const std::vector<std::int64_t>& rows : request.splits) {
    std::memcpy(at, rows.data(), rows.size() * sizeof(std::int64_t));
    at += rows.size() * sizeof(std::int64_t);
  }
  return to + bytes_of_splits(request.splits.size(), request.splits.front().size());
}

// [tensor][of member][for member]; moves `from` behind them.
std::vector<std::vector<std::int64_t>> read_splits(std::size_t n_tensors, std::span<const std::byte*> from) {
  const std::size_t n_members = from.size();
  std::vector<std::vector<std::int64_t>> splits(n_tensors, std::vector<std::int64_t>(n_members * n_members));
  for (std::size_t member = 0; member < n_members; ++member) {
    for (std::size_t i = 0; i < n_tensors; ++i) {
      std::memcpy(&splits[i][member * n_members], from[member] + i * n_members * sizeof(std::int64_t),
                  n_members * sizeof(std::int64_t));
    }
    from[member] += bytes_of_splits(n_tensors, n_members);
  }
  return splits;
}

Result<Outputs> outputs_of_splits(const Request& request, const std::vector<std::vector<std::int64_t>>& splits,
                                  const Mesh& mesh, const OutputMemory& memory) {
  FirstDims rows_from(splits.size());
  std::vector<std::int64_t> n_rows;
  const auto n_members = static_cast<std::size_t>(mesh.size());
  for (std::size_t i = 0; i < splits.size(); ++i) {
    for (auto at = static_cast<std::size_t>(mesh.rank()); at < splits[i].size(); at += n_members) {
      rows_from[i].push_back(splits[i][at]);
    }
    const auto n = sum_of_rows(rows_from[i]);
    if (!n) return Status::invalid_argument("alltoall '" + request.name + "': a tensor cannot have so many rows.");
    n_rows.push_back(*n);
  }
  Outputs outputs;
  if (Status status = outputs.allocate(memory, request, n_rows, mesh); !status.ok()) return status;
  outputs.add_received_splits(rows_from);
  return outputs;
}

Result<Outputs> outputs_of(const Request& request, const FirstDims* first_dims, const Mesh& mesh,
                           const OutputMemory& memory) {
  switch (request.signature.collective) {
    case Collective::kAllgather: return outputs_of_gather(request, *first_dims, mesh, memory);
    case Collective::kReducescatter: return outputs_of_reducescatter(request, mesh, memory);
    case Collective::kAlltoall: return outputs_of_even_exchange(request);
    default: return outputs_given(request);
  }
}

// Where among what is contributed this member's own is: by a root alone, if it is one.
std::optional<std::size_t> own_place(const Signature& signature, const Mesh& mesh) {
  if (!info(signature.collective).has_root) return static_cast<std::size_t>(mesh.rank());
  return root_member(signature, mesh) == mesh.rank() ? std::optional<std::size_t>(0) : std::nullopt;
}

}  // namespace

DirectTensor tensor_of(const Call& call, const FirstDims* first_dims, const Mesh& mesh) {
  DirectTensor made{.collective = call.collective,
                    .reduction = {call.dtype, call.op, call.prescale, call.postscale, mesh.size(), {}},
                    .input = call.memory.input,
                    .count = call.count()};
  made.n_bytes = made.count * size_of(call.dtype);
  if (info(call.collective).is_along_rows) {
    made.n_rows = call.shape.front();
    made.row_bytes = call.row_bytes();
  }
  if (first_dims != nullptr) made.rows_of = first_dims->front();
  return made;
}

void contribute_to_round(const Request& request, const Mesh& mesh, std::byte* to) {
  if (has_own_splits(request.signature)) to = write_splits(request, to);
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    const DirectTensor tensor = tensor_of(request, i, nullptr, mesh);
    contribute(tensor, static_cast<std::size_t>(mesh.rank()), static_cast<std::size_t>(mesh.size()), to);
    to += whole_lines(tensor.n_bytes);
  }
}

Status carry_out_round(const InFlight::Entry& entry, const FirstDims* first_dims,
                       std::vector<const std::byte*> contributed, const Mesh& mesh, const OutputMemory& memory) {
  const Request& request = entry.request;
  std::vector<std::vector<std::int64_t>> splits;
  if (has_own_splits(request.signature)) splits = read_splits(request.memory.size(), contributed);
  Result<Outputs> outputs =
      splits.empty() ? outputs_of(request, first_dims, mesh, memory) : outputs_of_splits(request, splits, mesh, memory);
  if (!outputs.ok()) return outputs.status();
  const auto own = own_place(request.signature, mesh);
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    DirectTensor tensor = tensor_of(request, i, first_dims, mesh);
    if (!splits.empty()) tensor.all_splits = splits[i];
    std::vector<const std::byte*> from = contributed;
    if (own) from[*own] = tensor.input;
    combine(tensor, static_cast<std::size_t>(mesh.rank()), from, outputs.value().memory[i]);
    for (std::size_t member = 0; member < contributed.size(); ++member) {
      contributed[member] += whole_lines(tensor.n_bytes_of(member, contributed.size()));
    }
  }
  entry.operation->set_outputs(std::move(outputs).value().buffers);
  return {};
}

}  // namespace ciranda
