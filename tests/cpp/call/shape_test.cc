// Shapes and sizes, and the table of collectives.
#include <gtest/gtest.h>

#include <cstdint>

#include "call/request.hpp"

namespace ciranda {
namespace {

TEST(Shape, HasATextAndACount) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{3}), "[3]");
  EXPECT_EQ(to_string(Shape{3, 0, 4}), "[3, 0, 4]");
  EXPECT_EQ(count_of(Shape{}), 1U);
  EXPECT_EQ(count_of(Shape{3, 4}), 12U);
  EXPECT_EQ(count_of(Shape{3, 0, 4}), 0U);
  EXPECT_EQ(count_of(Shape{std::int64_t{1} << 40}), std::uint64_t{1} << 40);
}

TEST(Signature, CountsTheBytesOfAllTensors) {
  Signature signature;
  EXPECT_EQ(signature.n_bytes(), 0U);
  signature.tensors = {{DataType::kFloat16, {3, 4}}, {DataType::kFloat64, {}}, {DataType::kInt32, {0}}};
  EXPECT_EQ(signature.n_bytes(), 24U + 8U);
}

TEST(Collectives, ComeFromTheWireOrNot) {
  for (unsigned value = 0; value < 256; ++value) {
    const auto collective = collective_from_wire(static_cast<std::uint8_t>(value));
    EXPECT_EQ(collective.has_value(), value < kNumCollectives) << value;
    if (collective) {
      EXPECT_EQ(info(*collective).collective, *collective);
    }
  }
  EXPECT_EQ(to_string(Collective::kAllreduce), "allreduce");
  EXPECT_EQ(to_string(Collective::kAllgather), "allgather");
  EXPECT_EQ(to_string(Collective::kBroadcast), "broadcast");
  EXPECT_EQ(to_string(Collective::kBarrier), "barrier");
}

TEST(Collectives, SayHowManyRowsARankGets) {
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(n_rows_of_result(Collective::kAllreduce, 7, rank, 3), 7);
    EXPECT_EQ(n_rows_of_result(Collective::kAllgather, 7, rank, 3), 21);
    EXPECT_EQ(n_rows_of_result(Collective::kReducescatter, 7, rank, 3), rank == 0 ? 3 : 2);
    EXPECT_EQ(n_rows_of_result(Collective::kAlltoall, 7, rank, 3), 7);
  }
}

// One root, or none.
TEST(Collectives, SayWhoGivesAndWhoReceives) {
  for (const CollectiveInfo& row : kCollectives) {
    const bool is_alike = row.gives(true) == row.gives(false) && row.receives(true) == row.receives(false);
    EXPECT_NE(row.has_root, is_alike) << row.name;
    EXPECT_TRUE(row.gives(true) || row.receives(true)) << row.name;
    EXPECT_TRUE(row.gives(false) || row.receives(false)) << row.name;
  }
}

}  // namespace
}  // namespace ciranda
