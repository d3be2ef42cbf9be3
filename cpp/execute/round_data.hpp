// RoundCall: a call in a direct round in memory, with a request or repeated without one: writes this rank's
// contribution, and combines those of all ranks. agree/round_rooms.hpp gives the layout in memory,
// execute/direct_tensor.hpp the operation on one tensor.
//
// A view: it owns no memory. Called by RoundsInMemory; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/copy_bytes.hpp"
#include "call/call.hpp"
#include "call/request.hpp"
#include "execute/direct_tensor.hpp"

namespace ciranda {

struct RoundCall {
  Collective collective;
  int root;  // the only member that contributes; -1 if all do
  std::span<const DirectTensor> tensors;
  int self;  // this member
  int n_members;

  bool contributes(int member) const { return root < 0 || root == member; }

  // Writes this member's contribution. REQUIRES: there is room for it.
  void contribute(std::byte* to, ReadLast read_last) const;
  // `contributed`: the contribution of each member, or of the root alone, without leading splits. It is overwritten.
  void combine(std::vector<const std::byte*>& contributed, std::span<std::byte* const> outputs) const;
};

// `rows_of`: [tensor][of member], null if they cannot differ; the tensor is the call's nth. The result views `rows_of`.
DirectTensor direct_tensor(const Terms& terms, const CallTensor& tensor, const FirstDims* rows_of, int n_members,
                           std::size_t nth = 0);
// The same for all tensors of a request. The results also view the request.
std::vector<DirectTensor> direct_tensors(const Request& request, const FirstDims* rows_of, int n_members);

// For tensors whose splits travel: reads them as [tensor][of member][for member], and moves `contributed` past them.
std::vector<std::vector<std::int64_t>> read_splits(std::size_t n_tensors, std::span<const std::byte*> contributed);

}  // namespace ciranda
