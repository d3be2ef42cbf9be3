// The table of reduction operators, and which element types each accepts. Values are the C ABI's; those up to 5
// are Horovod's, so that scripts that store them keep working.
// Used by Reduction, bindings/, call/, capi/ and kernels/; through Request by agree/ and execute/, through Plan by
// execute/, collective/ and backend/; pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "base/dtype.hpp"
#include "ciranda/ciranda.h"

namespace ciranda {

enum class ReduceOp : std::uint8_t {
  kAverage = CIRANDA_AVERAGE,
  kSum = CIRANDA_SUM,
  kAdasum = CIRANDA_ADASUM,
  kMin = CIRANDA_MIN,
  kMax = CIRANDA_MAX,
  kProduct = CIRANDA_PRODUCT,
  kBitwiseAnd = CIRANDA_BITWISE_AND,
  kBitwiseOr = CIRANDA_BITWISE_OR,
  kBitwiseXor = CIRANDA_BITWISE_XOR,
  kLogicalAnd = CIRANDA_LOGICAL_AND,
  kLogicalOr = CIRANDA_LOGICAL_OR,
  kLogicalXor = CIRANDA_LOGICAL_XOR,
};
inline constexpr std::size_t kNumReduceOps = 12;

// A set of type classes.
class TypeClasses {
 public:
  constexpr TypeClasses(std::initializer_list<TypeClass> members) {
    for (const TypeClass member : members) bits_ = static_cast<std::uint8_t>(bits_ | bit(member));
  }
  constexpr bool contains(TypeClass type_class) const { return (bits_ & bit(type_class)) != 0; }

 private:
  static constexpr std::uint8_t bit(TypeClass c) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(c)); }
  std::uint8_t bits_ = 0;
};

struct ReduceOpInfo {
  ReduceOp op;
  std::string_view name;
  TypeClasses takes;         // the type classes that it supports
  bool accepts_factors;      // prescale_factor and postscale_factor other than 1, where the type can be scaled
  bool is_elementwise;       // an element of the result depends only on the same element of the inputs
  std::string_view meaning;  // for the documentation
};

inline constexpr TypeClasses kIntegers{TypeClass::kUnsigned, TypeClass::kSigned};
inline constexpr TypeClasses kNumbers{TypeClass::kUnsigned, TypeClass::kSigned, TypeClass::kFloating,
                                      TypeClass::kComplex};
inline constexpr TypeClasses kOrdered{TypeClass::kBoolean, TypeClass::kUnsigned, TypeClass::kSigned,
                                      TypeClass::kFloating};
inline constexpr TypeClasses kBooleans{TypeClass::kBoolean};
inline constexpr TypeClasses kFloats{TypeClass::kFloating};

inline constexpr std::array kReduceOps{
    ReduceOpInfo{ReduceOp::kAverage, "average", kNumbers, true, true,
                 "the sum over the number of ranks that took part"},
    ReduceOpInfo{ReduceOp::kSum, "sum", kNumbers, true, true, "the sum; integers wrap"},
    ReduceOpInfo{ReduceOp::kAdasum, "adasum", kFloats, true, false,
                 "the adaptive sum: whole tensors are added in so far as they differ in direction"},
    ReduceOpInfo{ReduceOp::kMin, "min", kOrdered, true, true, "the smallest; NaN if any is NaN; -0 is below +0"},
    ReduceOpInfo{ReduceOp::kMax, "max", kOrdered, true, true, "the largest; NaN if any is NaN; -0 is below +0"},
    ReduceOpInfo{ReduceOp::kProduct, "product", kNumbers, true, true, "the product; integers wrap"},
    ReduceOpInfo{ReduceOp::kBitwiseAnd, "bitwise_and", kIntegers, false, true, "bits that are set in all"},
    ReduceOpInfo{ReduceOp::kBitwiseOr, "bitwise_or", kIntegers, false, true, "bits that are set in any"},
    ReduceOpInfo{ReduceOp::kBitwiseXor, "bitwise_xor", kIntegers, false, true, "bits that are set in an odd number"},
    ReduceOpInfo{ReduceOp::kLogicalAnd, "logical_and", kBooleans, false, true, "true in all"},
    ReduceOpInfo{ReduceOp::kLogicalOr, "logical_or", kBooleans, false, true, "true in any"},
    ReduceOpInfo{ReduceOp::kLogicalXor, "logical_xor", kBooleans, false, true, "true in an odd number"},
};
static_assert(kReduceOps.size() == kNumReduceOps);
static_assert(rows_are_in_order(kReduceOps, &ReduceOpInfo::op), "rows stand in the order of their wire value");

constexpr const ReduceOpInfo& info(ReduceOp op) { return kReduceOps[static_cast<std::size_t>(op)]; }
constexpr std::string_view to_string(ReduceOp op) { return info(op).name; }

constexpr std::optional<ReduceOp> reduce_op_from_wire(std::uint8_t value) {
  if (value >= kNumReduceOps) return std::nullopt;
  return static_cast<ReduceOp>(value);
}

constexpr bool accepts(ReduceOp op, DataType dtype) { return info(op).takes.contains(info(dtype).type_class); }

// True if factors other than 1 are supported. bool cannot be scaled.
constexpr bool accepts_factors(ReduceOp op, DataType dtype) {
  return accepts(op, dtype) && info(op).accepts_factors && dtype != DataType::kBool;
}

}  // namespace ciranda
