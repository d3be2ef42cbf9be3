// DirectTensor: one tensor of a call in a direct round: each member computes its own result from the contributions of
// all members, which it can read. A member reads its own data in its caller's memory, so it does not contribute rows
// that no other member needs.
//
// The fields are views: other objects own the memory. Called by RoundCall and RoundsInMemory; functions.hpp and what is
// in execute/collectives/; one thread (the holder of the progress lock).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/copy_bytes.hpp"
#include "call/op_table.hpp"
#include "call/request.hpp"
#include "kernels/kernels.hpp"

namespace ciranda {

// The position of some rows in a tensor.
struct RowBytes {
  std::size_t begin = 0;
  std::size_t n_bytes = 0;
};

// The rows of one member, if the rows of all members are stored one after the other.
inline RowBytes part_of_rows(std::size_t member, std::span<const std::int64_t> rows, std::size_t row_bytes) {
  return {sum_of(rows.first(member)) * row_bytes, static_cast<std::size_t>(rows[member]) * row_bytes};
}

// One tensor of a direct round. Members are numbered from 0.
struct DirectTensor {
  Collective collective = Collective::kAllreduce;
  Reduction reduction = {};  // for a reduction
  const std::byte* input = nullptr;
  std::size_t count = 0;    // elements of the input, for a reduction
  std::size_t n_bytes = 0;  // of the input
  std::int64_t n_rows = 0;  // of the input; this and row_bytes: for a collective along rows
  std::size_t row_bytes = 0;
  std::span<const std::int64_t> rows_of = {};     // rows of each member, if they may differ
  std::span<const std::int64_t> own_splits = {};  // rows for each member, if they are split; empty: equal parts
  std::span<const std::int64_t> all_splits = {};  // the splits of all members, [of member][for member]

  // The bytes of a member's input.
  std::size_t n_bytes_of(std::size_t member, std::size_t n_members) const;
  // The rows for a member, if rows are cut as by even_splits().
  RowBytes share_of_rows(std::size_t member, std::size_t n_members) const {
    const auto n_ranks = static_cast<std::int64_t>(n_members);
    const auto rank = static_cast<std::int64_t>(member);
    const std::int64_t first = rank * (n_rows / n_ranks) + std::min(rank, n_rows % n_ranks);
    const std::int64_t n_own = n_rows / n_ranks + (rank < n_rows % n_ranks ? 1 : 0);
    return {static_cast<std::size_t>(first) * row_bytes, static_cast<std::size_t>(n_own) * row_bytes};
  }
  // The rows of member `from` that `member` needs, if rows are cut or split.
  RowBytes rows_for(std::size_t member, std::size_t from, std::size_t n_members) const {
    if (all_splits.empty()) return share_of_rows(member, n_members);
    return part_of_rows(member, all_splits.subspan(from * n_members, n_members), row_bytes);
  }
  // Where the rows for this member (`self`) begin in the contribution of `from`, which lacks the rows that `from` keeps
  // for itself. This member's own input has all of its rows.
  std::size_t begin_in(std::size_t from, std::size_t self, std::size_t n_members) const {
    const std::size_t begin = rows_for(self, from, n_members).begin;
    return from < self ? begin - rows_for(from, from, n_members).n_bytes : begin;
  }
};

// Copies unless the bytes are already in place (`to` equals `from`).
inline void copy_unless_there(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  if (to != from) copy_bytes(to, from, n_bytes);
}

// Writes a member's contribution. REQUIRES: there is room for it.
void contribute(const DirectTensor& tensor, std::size_t self, std::size_t n_members, std::byte* to, ReadLast read_last);

}  // namespace ciranda
