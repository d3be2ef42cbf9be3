// RoundCall: a call as a direct round in memory carries it out, made again without a request or not: what a rank
// contributes, and what it makes of what all have contributed. agree/round_places.hpp says how that lies in memory,
// execute/direct_tensor.hpp what is made of one tensor.
//
// A view. One thread (the holder of the progress lock).
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
  int root;  // the member that alone contributes something; -1: all do
  std::span<const DirectTensor> tensors;
  int self;  // this member
  int n_members;

  bool contributes(int member) const { return root < 0 || root == member; }

  // What this member contributes. REQUIRES: there is room for it.
  void contribute(std::byte* to, ReadLast read_last) const;
  // `contributed`: by each member, or by the root alone; behind splits. It is overwritten.
  void combine(std::vector<const std::byte*>& contributed, std::span<std::byte* const> outputs) const;
};

// `rows_of`: [tensor][of member], null where they cannot differ; of these, the call's is the nth. The tensor views it.
DirectTensor tensor_of(const Call& call, const FirstDims* rows_of, int n_members, std::size_t nth = 0);
// Likewise; they view the request too.
std::vector<DirectTensor> tensors_of(const Request& request, const FirstDims* rows_of, int n_members);

// Of tensors whose splits travel: [tensor][of member][for member]. Moves `contributed` behind them.
std::vector<std::vector<std::int64_t>> read_splits(std::size_t n_tensors, std::span<const std::byte*> contributed);

}  // namespace ciranda
