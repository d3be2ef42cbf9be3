// The table of reduction operators, and which element types each accepts. The values are Horovod's, so that scripts
// that store them keep working.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.hpp"

namespace ciranda {

enum class ReduceOp : std::uint8_t { kAverage = 0, kSum = 1, kAdasum = 2, kMin = 3, kMax = 4, kProduct = 5 };
inline constexpr std::size_t kNumReduceOps = 6;

struct ReduceOpInfo {
  ReduceOp op;
  std::string_view name;
  bool implemented;
  bool accepts_bool;     // bool has an order (min = and, max = or) but no sum
  bool accepts_factors;  // prescale_factor and postscale_factor other than 1
};

inline constexpr std::array kReduceOps{
    ReduceOpInfo{ReduceOp::kAverage, "average", true, false, true},
    ReduceOpInfo{ReduceOp::kSum, "sum", true, false, true},
    ReduceOpInfo{ReduceOp::kAdasum, "adasum", false, false, false},
    ReduceOpInfo{ReduceOp::kMin, "min", true, true, true},
    ReduceOpInfo{ReduceOp::kMax, "max", true, true, true},
    ReduceOpInfo{ReduceOp::kProduct, "product", true, false, true},
};
static_assert(kReduceOps.size() == kNumReduceOps);

constexpr const ReduceOpInfo& info(ReduceOp op) { return kReduceOps[static_cast<std::size_t>(op)]; }
constexpr std::string_view to_string(ReduceOp op) { return info(op).name; }

constexpr std::optional<ReduceOp> reduce_op_from_wire(std::uint8_t value) {
  if (value >= kNumReduceOps) return std::nullopt;
  return static_cast<ReduceOp>(value);
}

constexpr bool accepts(ReduceOp op, DataType dtype) {
  return info(op).implemented && (dtype != DataType::kBool || info(op).accepts_bool);
}

}  // namespace ciranda
