#include "engine/direct_tensor.hpp"

#include <algorithm>
#include <numeric>

#include "base/copy_bytes.hpp"

namespace ciranda {
namespace {

std::size_t sum(std::span<const std::int64_t> rows) {
  return static_cast<std::size_t>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
}

// Bytes may be where they are wanted already: then both places are the same.
void copy_unless_there(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  if (to != from) copy_bytes(to, from, n_bytes);
}

// Where in a tensor some of its rows lie.
struct RowBytes {
  std::size_t begin = 0;
  std::size_t n_bytes = 0;
};

// Those of a member, where rows are cut as even_splits() does.
RowBytes share_of_rows(const DirectTensor& tensor, std::size_t member, std::size_t n_members) {
  const auto n_ranks = static_cast<std::int64_t>(n_members);
  const auto rank = static_cast<std::int64_t>(member);
  const std::int64_t first = rank * (tensor.n_rows / n_ranks) + std::min(rank, tensor.n_rows % n_ranks);
  const std::int64_t n_own = tensor.n_rows / n_ranks + (rank < tensor.n_rows % n_ranks ? 1 : 0);
  return {static_cast<std::size_t>(first) * tensor.row_bytes, static_cast<std::size_t>(n_own) * tensor.row_bytes};
}

RowBytes rows_for(std::size_t member, std::span<const std::int64_t> splits, std::size_t row_bytes) {
  return {sum(splits.first(member)) * row_bytes, static_cast<std::size_t>(splits[member]) * row_bytes};
}

// Of what one member has, the rows that another needs.
RowBytes rows_from_to(const DirectTensor& tensor, std::size_t from, std::size_t to, std::size_t n_members) {
  if (tensor.all_splits.empty()) return share_of_rows(tensor, to, n_members);
  return rows_for(to, tensor.all_splits.subspan(from * n_members, n_members), tensor.row_bytes);
}

// Those that nobody else needs.
RowBytes own_rows(const DirectTensor& tensor, std::size_t self, std::size_t n_members) {
  const bool has_own = tensor.collective == Collective::kReducescatter || tensor.collective == Collective::kAlltoall;
  if (!has_own) return {};
  if (tensor.own_splits.empty()) return share_of_rows(tensor, self, n_members);
  return rows_for(self, tensor.own_splits, tensor.row_bytes);
}

// Where the rows for this member begin in what another has contributed, which has a gap where its own were; this
// member's input has none.
std::size_t begin_in(const DirectTensor& tensor, std::size_t from, std::size_t self, std::size_t n_members) {
  const std::size_t begin = rows_from_to(tensor, from, self, n_members).begin;
  return from < self ? begin - rows_from_to(tensor, from, from, n_members).n_bytes : begin;
}

// This member's rows first: they may lie where those of another are to be (an output that is the input).
void gather_rows(const DirectTensor& tensor, std::size_t self, std::span<const std::byte*> from, std::byte* output) {
  const auto copy_from = [&](std::size_t rank) {
    const RowBytes rows = rows_for(rank, tensor.rows_of, tensor.row_bytes);
    copy_unless_there(output + rows.begin, from[rank], rows.n_bytes);
  };
  copy_from(self);
  for (std::size_t rank = 0; rank < from.size(); ++rank) {
    if (rank != self) copy_from(rank);
  }
}

// Moves `from` to the rows of this member.
void reduce_rows(const DirectTensor& tensor, std::size_t self, std::span<const std::byte*> from, std::byte* output) {
  const RowBytes own = share_of_rows(tensor, self, from.size());
  if (own.n_bytes == 0) return;
  for (std::size_t rank = 0; rank < from.size(); ++rank) from[rank] += begin_in(tensor, rank, self, from.size());
  kernels::reduce(tensor.reduction, from, output, own.n_bytes / size_of(tensor.reduction.dtype));
}

void exchange_rows(const DirectTensor& tensor, std::size_t self, std::span<const std::byte*> from, std::byte* output) {
  for (std::size_t rank = 0; rank < from.size(); ++rank) {
    const std::size_t n_bytes = rows_from_to(tensor, rank, self, from.size()).n_bytes;
    copy_unless_there(output, from[rank] + begin_in(tensor, rank, self, from.size()), n_bytes);
    output += n_bytes;
  }
}

}  // namespace

std::size_t DirectTensor::n_bytes_of(std::size_t member, std::size_t n_members) const {
  if (!rows_of.empty()) return static_cast<std::size_t>(rows_of[member]) * row_bytes;
  if (!all_splits.empty()) return sum(all_splits.subspan(member * n_members, n_members)) * row_bytes;
  return n_bytes;
}

// What the others need, without a gap where this member's own rows were: so the members of a pair write to the same
// lines of the buffers that they exchange, each to those that it has read last.
void contribute(const DirectTensor& tensor, std::size_t self, std::size_t n_members, std::byte* to) {
  const RowBytes own = own_rows(tensor, self, n_members);
  const std::size_t end = own.begin + own.n_bytes;
  copy_for_others(to, tensor.input, own.begin);
  copy_for_others(to + own.begin, tensor.input + end, tensor.n_bytes - end);
}

void combine(const DirectTensor& tensor, std::size_t self, std::span<const std::byte*> contributed, std::byte* output) {
  switch (tensor.collective) {
    case Collective::kAllreduce: return kernels::reduce(tensor.reduction, contributed, output, tensor.count);
    case Collective::kBroadcast:
      if (output != nullptr) copy_unless_there(output, contributed.front(), tensor.n_bytes);
      return;
    case Collective::kAllgather: return gather_rows(tensor, self, contributed, output);
    case Collective::kReducescatter: return reduce_rows(tensor, self, contributed, output);
    case Collective::kAlltoall: return exchange_rows(tensor, self, contributed, output);
    default: return;
  }
}

}  // namespace ciranda
