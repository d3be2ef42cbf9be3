// The tables of element types and reduction operators: what is on the wire, and who accepts what.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string_view>

#include "base/dtype.hpp"
#include "base/reduce_op.hpp"

namespace ciranda {
namespace {

TEST(DataTypes, HaveTheirSizes) {
  const std::size_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
  static_assert(std::size(sizes) == kNumDataTypes);
  for (std::size_t i = 0; i < kNumDataTypes; ++i) EXPECT_EQ(size_of(kDataTypes[i].dtype), sizes[i]) << i;
}

TEST(DataTypes, HaveDifferentNames) {
  std::set<std::string_view> names;
  for (const DataTypeInfo& row : kDataTypes) names.insert(row.name);
  EXPECT_EQ(names.size(), kNumDataTypes);
  EXPECT_EQ(to_string(DataType::kBFloat16), "bfloat16");
  EXPECT_EQ(to_string(DataType::kUInt8), "uint8");
}

// DLPack tells types apart by code and bits.
TEST(DataTypes, HaveDifferentDlpackCodes) {
  std::set<std::pair<int, std::size_t>> seen;
  for (const DataTypeInfo& row : kDataTypes) seen.insert({row.dlpack_code, row.n_bytes});
  EXPECT_EQ(seen.size(), kNumDataTypes);
}

TEST(DataTypes, ComeFromTheWireOrNot) {
  for (unsigned value = 0; value < 256; ++value) {
    const auto dtype = data_type_from_wire(static_cast<std::uint8_t>(value));
    EXPECT_EQ(dtype.has_value(), value < kNumDataTypes) << value;
    if (dtype) {
      EXPECT_EQ(static_cast<unsigned>(*dtype), value);
    }
  }
}

TEST(ReduceOps, HaveHorovodsValues) {
  EXPECT_EQ(static_cast<int>(ReduceOp::kAverage), 0);
  EXPECT_EQ(static_cast<int>(ReduceOp::kSum), 1);
  EXPECT_EQ(static_cast<int>(ReduceOp::kAdasum), 2);
  EXPECT_EQ(static_cast<int>(ReduceOp::kMin), 3);
  EXPECT_EQ(static_cast<int>(ReduceOp::kMax), 4);
  EXPECT_EQ(static_cast<int>(ReduceOp::kProduct), 5);
  for (std::size_t i = 0; i < kNumReduceOps; ++i) EXPECT_EQ(static_cast<std::size_t>(kReduceOps[i].op), i);
}

TEST(ReduceOps, ComeFromTheWireOrNot) {
  for (unsigned value = 0; value < 256; ++value) {
    const auto op = reduce_op_from_wire(static_cast<std::uint8_t>(value));
    EXPECT_EQ(op.has_value(), value < kNumReduceOps) << value;
    if (op) {
      EXPECT_EQ(static_cast<unsigned>(*op), value);
    }
  }
}

// One row a type class, so that a slip in the table of operators is seen.
TEST(ReduceOps, AcceptWhatMakesSense) {
  const auto ops_of = [](DataType dtype) {
    std::set<std::string_view> names;
    for (const ReduceOpInfo& row : kReduceOps) {
      if (accepts(row.op, dtype)) names.insert(row.name);
    }
    return names;
  };
  using Names = std::set<std::string_view>;
  EXPECT_EQ(ops_of(DataType::kBool), (Names{"min", "max", "logical_and", "logical_or", "logical_xor"}));
  const Names of_integers{"average", "sum", "min", "max", "product", "bitwise_and", "bitwise_or", "bitwise_xor"};
  EXPECT_EQ(ops_of(DataType::kUInt8), of_integers);
  EXPECT_EQ(ops_of(DataType::kInt64), of_integers);
  const Names of_floats{"average", "sum", "adasum", "min", "max", "product"};
  EXPECT_EQ(ops_of(DataType::kBFloat16), of_floats);
  EXPECT_EQ(ops_of(DataType::kFloat64), of_floats);
  EXPECT_EQ(ops_of(DataType::kComplex64), (Names{"average", "sum", "product"}));
  EXPECT_EQ(ops_of(DataType::kComplex128), (Names{"average", "sum", "product"}));
}

TEST(ReduceOps, AreScaledWhereTheResultIsANumber) {
  EXPECT_TRUE(accepts_factors(ReduceOp::kSum, DataType::kInt32));
  EXPECT_TRUE(accepts_factors(ReduceOp::kProduct, DataType::kComplex64));
  EXPECT_FALSE(accepts_factors(ReduceOp::kMin, DataType::kBool));
  EXPECT_FALSE(accepts_factors(ReduceOp::kMin, DataType::kComplex64));
  EXPECT_FALSE(accepts_factors(ReduceOp::kBitwiseAnd, DataType::kInt32));
}

}  // namespace
}  // namespace ciranda
