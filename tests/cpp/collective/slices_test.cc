#include "collective/slices.hpp"

#include <gtest/gtest.h>

namespace ciranda {
namespace {

TEST(SlicesTest, CoverTheRangeInOrderWithoutSplittingALine) {
  for (const int n_ranks : {1, 2, 3, 4, 7, 64}) {
    for (std::size_t n_bytes = 0; n_bytes < 3000; n_bytes += n_bytes < 200 ? 1 : 37) {
      std::size_t next = 0;
      for (int rank = 0; rank < n_ranks; ++rank) {
        const Slice slice = slice_of(n_bytes, n_ranks, rank);
        ASSERT_EQ(slice.offset, next) << n_bytes << " bytes, rank " << rank << " of " << n_ranks;
        if (slice.n_bytes > 0) {
          ASSERT_EQ(slice.offset % 64, 0U);
        }
        next += slice.n_bytes;
      }
      ASSERT_EQ(next, n_bytes);
    }
  }
}

TEST(SlicesTest, NoSliceIsLargerThanTheFirst) {
  for (std::size_t n_bytes = 0; n_bytes < 5000; n_bytes += 61) {
    for (int rank = 1; rank < 7; ++rank) {
      EXPECT_LE(slice_of(n_bytes, 7, rank).n_bytes, slice_of(n_bytes, 7, 0).n_bytes);
    }
  }
}

}  // namespace
}  // namespace ciranda
