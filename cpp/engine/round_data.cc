#include "engine/round_data.hpp"

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "engine/collectives/functions.hpp"
#include "engine/outputs.hpp"
#include "engine/work.hpp"
#include "negotiate/round_places.hpp"

namespace ciranda {
namespace {

DirectTensor tensor_of(const Request& request, std::size_t i, const FirstDims* first_dims, const Mesh& mesh) {
  const Signature& signature = request.signature;
  DirectTensor made = tensor_of(call_of(request, i), first_dims == nullptr ? nullptr : &(*first_dims)[i], mesh);
  if (!info(signature.collective).takes_splits) return made;
  made.n_bytes = bytes_of_rows(request.splits[i], signature.tensors[i]);
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

// [tensor][of member]: those for one.
FirstDims splits_for(std::size_t member, const std::vector<std::vector<std::int64_t>>& splits, std::size_t n_members) {
  FirstDims rows(splits.size());
  for (std::size_t i = 0; i < splits.size(); ++i) {
    for (std::size_t at = member; at < splits[i].size(); at += n_members) rows[i].push_back(splits[i][at]);
  }
  return rows;
}

// Where among what is contributed this member's own is: by a root alone, if it is one.
std::optional<std::size_t> own_place(const Signature& signature, const Mesh& mesh) {
  if (!info(signature.collective).is_from_root) return static_cast<std::size_t>(mesh.rank());
  return root_member(signature, mesh) == mesh.rank() ? std::optional<std::size_t>(0) : std::nullopt;
}

}  // namespace

DirectTensor tensor_of(const Call& call, const std::vector<std::int64_t>* rows_of, const Mesh& mesh) {
  DirectTensor made{.collective = call.collective,
                    .reduction = {call.dtype, call.op, call.prescale, call.postscale, mesh.size(), {}},
                    .input = call.memory.input,
                    .count = call.count()};
  made.n_bytes = made.count * size_of(call.dtype);
  if (info(call.collective).is_along_rows) {
    made.n_rows = call.shape.front();
    made.row_bytes = call.row_bytes();
  }
  if (rows_of != nullptr) made.rows_of = *rows_of;
  return made;
}

void contribute_to_round(const Request& request, const Mesh& mesh, std::byte* to, StagingCopy how) {
  if (has_own_splits(request.signature)) to = write_splits(request, to);
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    const DirectTensor tensor = tensor_of(request, i, nullptr, mesh);
    contribute(tensor, static_cast<std::size_t>(mesh.rank()), static_cast<std::size_t>(mesh.size()), to, how);
    to += whole_lines(tensor.n_bytes);
  }
}

Status carry_out_round(const InFlight::Entry& entry, const FirstDims* first_dims,
                       std::vector<const std::byte*> contributed, const Mesh& mesh, const OutputMemory& memory) {
  const Request& request = entry.request;
  const auto self = static_cast<std::size_t>(mesh.rank());
  std::vector<std::vector<std::int64_t>> splits;
  FirstDims rows_from = first_dims == nullptr ? request.splits : *first_dims;
  if (has_own_splits(request.signature)) {
    splits = read_splits(request.memory.size(), contributed);
    rows_from = splits_for(self, splits, contributed.size());
  }
  const auto outputs = give_outputs(entry, &rows_from, mesh, memory);
  if (!outputs.ok()) return outputs.status();
  const auto own = own_place(request.signature, mesh);
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    DirectTensor tensor = tensor_of(request, i, first_dims, mesh);
    if (!splits.empty()) tensor.all_splits = splits[i];
    std::vector<const std::byte*> from = contributed;
    if (own) from[*own] = tensor.input;
    functions(request.signature.collective).combine(tensor, self, from, outputs.value()[i]);
    for (std::size_t member = 0; member < contributed.size(); ++member) {
      contributed[member] += whole_lines(tensor.n_bytes_of(member, contributed.size()));
    }
  }
  return {};
}

}  // namespace ciranda
