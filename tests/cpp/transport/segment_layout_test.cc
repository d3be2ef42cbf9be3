#include "transport/segment_layout.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace ciranda {
namespace {

struct alignas(4096) Page {
  std::array<std::byte, 4096> bytes{};
};

// Writes something of its own into every part, and looks whether all of it is still there.
TEST(SegmentLayout, PartsDoNotOverlap) {
  for (const int n : {1, 2, 4, 7}) {
    const SegmentLayout layout(n, 4096);
    std::vector<Page> pages(layout.n_bytes() / sizeof(Page));
    const std::span memory(reinterpret_cast<std::byte*>(pages.data()), layout.n_bytes());
    ASSERT_EQ(layout.n_bytes() % sizeof(Page), 0U);
    std::vector<std::byte> full(layout.data_bytes());
    for (int from = 0; from < n; ++from) {
      std::fill(full.begin(), full.end(), static_cast<std::byte>(from + 1));
      for (std::size_t chunk = 0; chunk < 2; ++chunk) {
        std::copy_n(full.begin(), 4096, layout.arena(memory, from).slot(from, chunk));
      }
      layout.arena(memory, from).doorbell(from) = 1;
      layout.arena(memory, from).counter(from, SharedArena::Counter::kConsumed) = 1;
      std::fill_n(layout.probe(memory, from).begin(), SegmentLayout::kProbeBytes, static_cast<std::byte>(from + 1));
      for (int to = 0; to < n; ++to) {
        if (to != from) {
          EXPECT_EQ(layout.data_ring(memory, from, to).write_some(full), layout.data_bytes());
          EXPECT_EQ(layout.control_ring(memory, from, to).write_some(full), layout.control_bytes());
        }
      }
    }
    std::vector<std::byte> got(layout.data_bytes());
    for (int from = 0; from < n; ++from) {
      std::fill(full.begin(), full.end(), static_cast<std::byte>(from + 1));
      EXPECT_EQ(layout.arena(memory, 0).slot(from, 1)[4095], full[0]);
      EXPECT_EQ(layout.arena(memory, 0).doorbell(from), 1U);
      EXPECT_EQ(layout.arena(memory, 0).counter(from, SharedArena::Counter::kConsumed), 1U);
      EXPECT_EQ(layout.probe(memory, from)[31], full[0]);
      for (int to = 0; to < n; ++to) {
        if (to != from) {
          EXPECT_EQ(layout.data_ring(memory, from, to).read_some(got), layout.data_bytes());
          EXPECT_EQ(got, full);
          EXPECT_EQ(layout.control_ring(memory, from, to).read_some(got), layout.control_bytes());
        }
      }
    }
  }
}

TEST(SegmentLayout, RingsShrinkSoThatManyRanksFit) {
  EXPECT_EQ(SegmentLayout(2, 0).data_bytes(), 512U << 10);
  EXPECT_EQ(SegmentLayout(2, 0).control_bytes(), 64U << 10);
  EXPECT_LT(SegmentLayout(8, 0).n_bytes(), 24U << 20);
  EXPECT_LT(SegmentLayout(32, 0).n_bytes(), 24U << 20);
  EXPECT_LT(SegmentLayout(64, 0).n_bytes(), 90U << 20);
}

}  // namespace
}  // namespace ciranda
