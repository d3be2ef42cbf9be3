// What can go by NCCL (base/way.hpp): the collectives, with every op that is elementwise; and which reductions NCCL
// does by itself. For the others it moves the inputs, and kernels of ours reduce them. Used by ways.cc and
// nccl_backend.cc; pure.
#pragma once

#include <algorithm>
#include <array>

#include "base/dtype.hpp"
#include "base/reduce_op.hpp"
#include "call/op_table.hpp"

namespace ciranda {

inline constexpr std::array kNcclCollectives{Collective::kAllreduce,     Collective::kAllgather, Collective::kBroadcast,
                                             Collective::kReducescatter, Collective::kAlltoall,  Collective::kReduce,
                                             Collective::kGather,        Collective::kScatter};

constexpr bool may_go_by_nccl(Collective collective) {
  return std::ranges::find(kNcclCollectives, collective) != kNcclCollectives.end();
}

// NCCL lacks some types; integers would wrap in averages, and lose bits to factors; its least and greatest
// floating-point numbers are not ours where there is a NaN.
constexpr bool is_reduced_by_nccl(DataType dtype, ReduceOp op, bool has_factors) {
  using enum DataType;
  constexpr std::array kNcclIntegers{kInt8, kUInt8, kInt32, kUInt32, kInt64, kUInt64};
  const bool is_average = op == ReduceOp::kAverage;
  const bool adds = is_average || op == ReduceOp::kSum || op == ReduceOp::kProduct;
  if (info(dtype).type_class == TypeClass::kFloating) return adds;
  const bool is_extreme = op == ReduceOp::kMin || op == ReduceOp::kMax;
  return std::ranges::find(kNcclIntegers, dtype) != kNcclIntegers.end() && !has_factors && !is_average &&
         (adds || is_extreme);
}

}  // namespace ciranda
