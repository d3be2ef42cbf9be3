// DirectTensor: one tensor of a call whose result each member makes by itself, of what all members have contributed and
// now lies at hand. A member reads what is its own where its caller has it: rows that nobody else needs are not
// contributed.
//
// Views of memory that others own.
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

// Where in a tensor some of its rows lie.
struct RowBytes {
  std::size_t begin = 0;
  std::size_t n_bytes = 0;
};

// A member's, of rows of all that follow each other.
inline RowBytes part_of_rows(std::size_t member, std::span<const std::int64_t> rows, std::size_t row_bytes) {
  return {sum_of(rows.first(member)) * row_bytes, static_cast<std::size_t>(rows[member]) * row_bytes};
}

// Of a collective that goes direct. Members are numbered from 0.
struct DirectTensor {
  Collective collective = Collective::kAllreduce;
  kernels::Reduction reduction = {};  // of a reduction
  const std::byte* input = nullptr;
  std::size_t count = 0;    // of elements of the input, of a reduction
  std::size_t n_bytes = 0;  // of the input
  std::int64_t n_rows = 0;  // likewise; this and row_bytes: of a collective along rows
  std::size_t row_bytes = 0;
  std::span<const std::int64_t> rows_of = {};     // each member's, where they may differ
  std::span<const std::int64_t> own_splits = {};  // rows for each member, where they are split; empty: as many for each
  std::span<const std::int64_t> all_splits = {};  // likewise, [of member][for member]

  // How much of a tensor a member has.
  std::size_t n_bytes_of(std::size_t member, std::size_t n_members) const;
  // A member's, where rows are cut as even_splits() does.
  RowBytes share_of_rows(std::size_t member, std::size_t n_members) const {
    const auto n_ranks = static_cast<std::int64_t>(n_members);
    const auto rank = static_cast<std::int64_t>(member);
    const std::int64_t first = rank * (n_rows / n_ranks) + std::min(rank, n_rows % n_ranks);
    const std::int64_t n_own = n_rows / n_ranks + (rank < n_rows % n_ranks ? 1 : 0);
    return {static_cast<std::size_t>(first) * row_bytes, static_cast<std::size_t>(n_own) * row_bytes};
  }
  // Of what the member `from` has, the rows that a member needs, where rows are cut or split.
  RowBytes rows_for(std::size_t member, std::size_t from, std::size_t n_members) const {
    if (all_splits.empty()) return share_of_rows(member, n_members);
    return part_of_rows(member, all_splits.subspan(from * n_members, n_members), row_bytes);
  }
  // Where the rows for this member begin in what another has contributed, which has a gap where its own were; this
  // member's input has none.
  std::size_t begin_in(std::size_t from, std::size_t self, std::size_t n_members) const {
    const std::size_t begin = rows_for(self, from, n_members).begin;
    return from < self ? begin - rows_for(from, from, n_members).n_bytes : begin;
  }
};

// Bytes may be where they are wanted already: then both places are the same.
inline void copy_unless_there(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  if (to != from) copy_bytes(to, from, n_bytes);
}

// REQUIRES: room for what the member has.
void contribute(const DirectTensor& tensor, std::size_t self, std::size_t n_members, std::byte* to, ReadLast read_last);

}  // namespace ciranda
