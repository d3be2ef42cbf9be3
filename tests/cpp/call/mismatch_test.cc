// describe_mismatch(): every property that ranks must agree on, with both values; and what they need not agree on.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "call/request.hpp"

namespace ciranda {
namespace {

Signature of(Collective collective, Shape shape = {3, 4}) {
  Signature signature;
  signature.collective = collective;
  if (info(collective).has_tensors) signature.tensors = {{DataType::kFloat32, std::move(shape)}};
  if (info(collective).has_root) signature.root = 0;
  return signature;
}

std::string difference(const Signature& a, const Signature& b) { return describe_mismatch(a, 0, b, 3); }

TEST(Mismatch, IsNoneBetweenEquals) {
  for (const CollectiveInfo& row : kCollectives) EXPECT_EQ(difference(of(row.collective), of(row.collective)), "");
}

TEST(Mismatch, OfTheCollective) {
  for (const CollectiveInfo& a : kCollectives) {
    for (const CollectiveInfo& b : kCollectives) {
      if (a.collective == b.collective) continue;
      EXPECT_EQ(difference(of(a.collective), of(b.collective)),
                "collective " + std::string(a.name) + " on rank 0 but " + std::string(b.name) + " on rank 3");
    }
  }
}

TEST(Mismatch, OfTheReduceOp) {
  Signature other = of(Collective::kAllreduce);
  other.op = ReduceOp::kMax;
  EXPECT_EQ(difference(of(Collective::kAllreduce), other), "reduce op sum on rank 0 but max on rank 3");
  other.collective = Collective::kAllgather;  // which has none
  EXPECT_EQ(difference(of(Collective::kAllgather), other), "");
}

TEST(Mismatch, OfTheFactors) {
  Signature other = of(Collective::kAllreduce);
  other.prescale = 0.5;
  EXPECT_EQ(difference(of(Collective::kAllreduce), other),
            "(prescale_factor, postscale_factor) (1, 1) on rank 0 but (0.5, 1) on rank 3");
  other.prescale = 1;
  other.postscale = 0.25;
  EXPECT_EQ(difference(of(Collective::kAllreduce), other),
            "(prescale_factor, postscale_factor) (1, 1) on rank 0 but (1, 0.25) on rank 3");
}

TEST(Mismatch, OfTheDivisor) {
  Signature other = of(Collective::kAllreduce);
  other.divides_by_all = true;
  EXPECT_EQ(difference(of(Collective::kAllreduce), other), "divisor contributors on rank 0 but world on rank 3");
}

TEST(Mismatch, OfWhetherAllAreNeeded) {
  Signature other = of(Collective::kAllgather);
  other.needs_all = true;
  EXPECT_EQ(difference(of(Collective::kAllgather), other),
            "what is to happen while ranks have joined goes on without some on rank 0 but needs all ranks on rank 3");
}

TEST(Mismatch, OfTheWeight) {
  Signature other = of(Collective::kAllreduce);
  other.is_weighted = true;
  EXPECT_EQ(difference(of(Collective::kAllreduce), other), "weight none on rank 0 but given on rank 3");
}

// Factors that differ in the last bit only must not look the same in the text.
TEST(Mismatch, OfFactorsThatAreVeryClose) {
  Signature a = of(Collective::kAllreduce);
  Signature b = a;
  a.prescale = 0.1;
  b.prescale = 0.1 + 0x1p-56;
  ASSERT_NE(a.prescale, b.prescale);
  EXPECT_EQ(difference(a, b),
            "(prescale_factor, postscale_factor) (0.1, 1) on rank 0 but (0.10000000000000002, 1) on rank 3");
  a.prescale = 1e-9;
  b.prescale = 2e-9;
  EXPECT_EQ(difference(a, b), "(prescale_factor, postscale_factor) (1e-09, 1) on rank 0 but (2e-09, 1) on rank 3");
}

TEST(Mismatch, OfTheRoot) {
  Signature other = of(Collective::kBroadcast);
  other.root = 2;
  EXPECT_EQ(difference(of(Collective::kBroadcast), other), "root_rank 0 on rank 0 but 2 on rank 3");
}

TEST(Mismatch, OfTheRanksOfANewProcessSet) {
  Signature one = of(Collective::kAddProcessSet);
  Signature other = one;
  one.arguments = {0, 3};
  other.arguments = {0, 2, 3};
  EXPECT_EQ(difference(one, other), "ranks [0, 3] on rank 0 but [0, 2, 3] on rank 3");
}

// Where splits are taken the signature does not know the first dimension, so neither does the text.
TEST(Mismatch, OfTheShapeBehindSplits) {
  for (const Collective collective : {Collective::kAlltoall, Collective::kScatter}) {
    EXPECT_EQ(difference(of(collective, {0, 4}), of(collective, {7, 4})), "");
    EXPECT_EQ(difference(of(collective, {0, 4}), of(collective, {0, 5})),
              "shape [*, 4] on rank 0 but [*, 5] on rank 3 (only the first dimension may differ)");
    EXPECT_EQ(difference(of(collective, {0}), of(collective, {0, 5})),
              "shape [*] on rank 0 but [*, 5] on rank 3 (only the first dimension may differ)");
  }
}

TEST(Mismatch, OfTheNumberOfTensors) {
  Signature other = of(Collective::kAllreduce);
  other.tensors.push_back(other.tensors.front());
  EXPECT_EQ(difference(of(Collective::kAllreduce), other), "number of tensors 1 on rank 0 but 2 on rank 3");
  EXPECT_EQ(difference(other, of(Collective::kAllreduce)), "number of tensors 2 on rank 0 but 1 on rank 3");
}

TEST(Mismatch, OfTheDtype) {
  Signature other = of(Collective::kAllreduce);
  other.tensors[0].dtype = DataType::kFloat64;
  EXPECT_EQ(difference(of(Collective::kAllreduce), other), "dtype float32 on rank 0 but float64 on rank 3");
}

TEST(Mismatch, OfTheShape) {
  for (const Shape& shape : {Shape{3, 5}, Shape{4, 4}, Shape{3}, Shape{}, Shape{3, 4, 1}, Shape{12}}) {
    EXPECT_EQ(difference(of(Collective::kAllreduce), of(Collective::kAllreduce, shape)),
              "shape [3, 4] on rank 0 but " + to_string(shape) + " on rank 3");
  }
}

TEST(Mismatch, OfAGatheredShapeButForTheFirstDimension) {
  EXPECT_EQ(difference(of(Collective::kAllgather), of(Collective::kAllgather, {7, 4})), "");
  EXPECT_EQ(difference(of(Collective::kAllgather), of(Collective::kAllgather, {0, 4})), "");
  for (const Shape& shape : {Shape{3, 5}, Shape{3}, Shape{3, 4, 1}}) {
    EXPECT_EQ(difference(of(Collective::kAllgather), of(Collective::kAllgather, shape)),
              "shape [3, 4] on rank 0 but " + to_string(shape) + " on rank 3 (only the first dimension may differ)");
  }
}

TEST(Mismatch, SaysWhichTensorOfAGroup) {
  Signature a = of(Collective::kAllreduce);
  a.tensors.push_back({DataType::kInt8, {2}});
  Signature b = a;
  b.tensors[1].shape = {9};
  EXPECT_EQ(difference(a, b), "shape of tensor 1 of the group [2] on rank 0 but [9] on rank 3");
  b.tensors[1].dtype = DataType::kInt16;
  EXPECT_EQ(difference(a, b), "dtype of tensor 1 of the group int8 on rank 0 but int16 on rank 3");
}

}  // namespace
}  // namespace ciranda
