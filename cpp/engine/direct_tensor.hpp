// DirectTensor: one tensor of a call whose result each member makes by itself, of what all members have contributed and
// now lies at hand. A member reads what is its own where its caller has it: rows that nobody else needs are not
// contributed.
//
// Views of memory that others own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernels.hpp"
#include "request/op_table.hpp"

namespace ciranda {

// Of an allreduce, broadcast, allgather, reducescatter or alltoall. Members are numbered from 0.
struct DirectTensor {
  Collective collective = Collective::kAllreduce;
  kernels::Reduction reduction = {};  // of a reduction
  const std::byte* input = nullptr;
  std::size_t count = 0;    // of elements of the input, of a reduction
  std::size_t n_bytes = 0;  // of the input
  std::int64_t n_rows = 0;  // likewise; this and row_bytes: of a collective along rows
  std::size_t row_bytes = 0;
  std::span<const std::int64_t> rows_of = {};     // allgather: each member's
  std::span<const std::int64_t> own_splits = {};  // alltoall: rows for each member; empty: as many for each
  std::span<const std::int64_t> all_splits = {};  // likewise, [of member][for member]

  // How much of a tensor a member has.
  std::size_t n_bytes_of(std::size_t member, std::size_t n_members) const;
};

// REQUIRES: room for what the member has.
void contribute(const DirectTensor& tensor, std::size_t self, std::size_t n_members, std::byte* to);

// `contributed`: by each member, and by the root alone where there is one; what is this member's own: its input. It is
// overwritten. The output may be the input, of an alltoall with equal parts too.
void combine(const DirectTensor& tensor, std::size_t self, std::span<const std::byte*> contributed, std::byte* output);

}  // namespace ciranda
