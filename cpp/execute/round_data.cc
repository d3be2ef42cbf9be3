#include "execute/round_data.hpp"

#include <cstring>

#include "agree/round_rooms.hpp"
#include "base/copy_bytes.hpp"
#include "execute/collectives/functions.hpp"

namespace ciranda {
namespace {

std::byte* write_splits(std::span<const DirectTensor> tensors, std::byte* to) {
  std::byte* at = to;
  for (const DirectTensor& tensor : tensors) {
    std::memcpy(at, tensor.own_splits.data(), tensor.own_splits.size_bytes());
    at += tensor.own_splits.size_bytes();
  }
  return to + bytes_of_splits(tensors.size(), tensors.front().own_splits.size());
}

// The rows that no other member needs.
RowBytes own_rows(const DirectTensor& tensor, std::size_t self, std::size_t n_members) {
  const Rows rows = info(tensor.collective).rows;
  if (rows != Rows::kCut && rows != Rows::kSplit) return {};
  if (tensor.own_splits.empty()) return tensor.share_of_rows(self, n_members);
  return part_of_rows(self, tensor.own_splits, tensor.row_bytes);
}

}  // namespace

std::size_t DirectTensor::n_bytes_of(std::size_t member, std::size_t n_members) const {
  if (!rows_of.empty()) return static_cast<std::size_t>(rows_of[member]) * row_bytes;
  if (!all_splits.empty()) return sum_of(all_splits.subspan(member * n_members, n_members)) * row_bytes;
  return n_bytes;
}

// Writes the rows that the others need, without a gap for this member's own rows. So two members write to the same
// cache lines of the buffers that they exchange, and each writes to the lines that it has read last.
void contribute(const DirectTensor& tensor, std::size_t self, std::size_t n_members, std::byte* to,
                ReadLast read_last) {
  const RowBytes own = own_rows(tensor, self, n_members);
  const std::size_t end = own.begin + own.n_bytes;
  copy_for_others(to, tensor.input, own.begin, read_last);
  copy_for_others(to + own.begin, tensor.input + end, tensor.n_bytes - end, read_last);
}

DirectTensor direct_tensor(const Terms& terms, const CallTensor& tensor, const FirstDims* rows_of, int n_members,
                           std::size_t nth) {
  DirectTensor made{.collective = terms.collective,
                    .reduction = {tensor.dtype, terms.op, terms.prescale, terms.postscale, n_members, {}},
                    .input = tensor.memory.input,
                    .count = count_of(tensor.shape),
                    .n_bytes = tensor.n_bytes()};
  if (info(terms.collective).is_along_rows) {
    made.n_rows = tensor.shape.front();
    made.row_bytes = tensor.row_bytes();
  }
  if (rows_of != nullptr) made.rows_of = (*rows_of)[nth];
  return made;
}

std::vector<DirectTensor> direct_tensors(const Request& request, const FirstDims* rows_of, int n_members) {
  const Signature& signature = request.signature;
  std::vector<DirectTensor> tensors;
  tensors.reserve(request.memory.size());
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    DirectTensor& made = tensors.emplace_back(direct_tensor(signature, tensor_of(request, i), rows_of, n_members, i));
    if (!info(signature.collective).takes_splits) continue;
    made.n_bytes = bytes_of_rows(request.splits[i], signature.tensors[i]);
    if (has_own_splits(signature)) {
      made.own_splits = request.splits[i];
    } else {
      made.n_rows = signature.arguments[i];
    }
  }
  return tensors;
}

void RoundCall::contribute(std::byte* to, ReadLast read_last) const {
  if (!tensors.empty() && !tensors.front().own_splits.empty()) to = write_splits(tensors, to);
  for (const DirectTensor& tensor : tensors) {
    ciranda::contribute(tensor, static_cast<std::size_t>(self), static_cast<std::size_t>(n_members), to, read_last);
    to += whole_lines(tensor.n_bytes);
  }
}

void RoundCall::combine(std::vector<const std::byte*>& contributed, std::span<std::byte* const> outputs) const {
  const std::size_t own_place = root < 0 ? static_cast<std::size_t>(self) : 0;
  std::vector<const std::byte*> copy;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const DirectTensor& tensor = tensors[i];
    const bool is_last = i + 1 == tensors.size();
    if (!is_last) copy = contributed;
    std::vector<const std::byte*>& from = is_last ? contributed : copy;
    if (contributes(self)) from[own_place] = tensor.input;
    functions(collective).combine(tensor, static_cast<std::size_t>(self), from, outputs[i]);
    for (std::size_t member = 0; !is_last && member < contributed.size(); ++member) {
      contributed[member] += whole_lines(tensor.n_bytes_of(member, contributed.size()));
    }
  }
}

std::vector<std::vector<std::int64_t>> read_splits(std::size_t n_tensors, std::span<const std::byte*> contributed) {
  const std::size_t n_members = contributed.size();
  std::vector<std::vector<std::int64_t>> splits(n_tensors, std::vector<std::int64_t>(n_members * n_members));
  for (std::size_t member = 0; member < n_members; ++member) {
    for (std::size_t i = 0; i < n_tensors; ++i) {
      std::memcpy(&splits[i][member * n_members], contributed[member] + i * n_members * sizeof(std::int64_t),
                  n_members * sizeof(std::int64_t));
    }
    contributed[member] += bytes_of_splits(n_tensors, n_members);
  }
  return splits;
}

}  // namespace ciranda
