#include "transport/segment_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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
      layout.absences(memory).note(from);
      layout.senders(memory, from).note(from);
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
      EXPECT_EQ(layout.absences(memory).place_of(from), static_cast<std::uint32_t>(from + 1));
      layout.senders(memory, from).take([from](int member) { EXPECT_EQ(member, from); });
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

// The member that is to allocate each page; -1 if none is, -2 if several are.
std::vector<int> owners_of_pages(const SegmentLayout& layout) {
  std::vector<int> owners(layout.n_bytes() / sizeof(Page), -1);
  for (int member = 0; member < layout.n_members(); ++member) {
    for (const ShmExtent& each : layout.owned_by(member)) {
      EXPECT_EQ(each.offset % sizeof(Page), 0U);
      EXPECT_EQ(each.n_bytes % sizeof(Page), 0U);
      for (std::size_t page = 0; page < each.n_bytes / sizeof(Page); ++page) {
        int& owner = owners.at(each.offset / sizeof(Page) + page);
        owner = owner == -1 ? member : -2;
      }
    }
  }
  return owners;
}

TEST(SegmentLayout, EachPageIsForOneMemberToAllocateAndEachPartForItsOwn) {
  for (const int n : {1, 2, 4, 7}) {
    for (const std::size_t slot_bytes : {std::size_t{0}, std::size_t{8192}}) {
      const SegmentLayout layout(n, slot_bytes);
      std::vector<Page> pages(layout.n_bytes() / sizeof(Page));
      const std::span memory(reinterpret_cast<std::byte*>(pages.data()), layout.n_bytes());
      const std::vector<int> owners = owners_of_pages(layout);
      EXPECT_EQ(std::count_if(owners.begin(), owners.end(), [](int owner) { return owner < 0; }), 0);
      const auto expect_owner = [&](const void* first, std::size_t n_bytes, int member) {
        const auto at = static_cast<std::size_t>(static_cast<const std::byte*>(first) - memory.data());
        for (std::size_t page = at / sizeof(Page); page * sizeof(Page) < at + n_bytes; ++page) {
          EXPECT_EQ(owners[page], member) << "page " << page << " of " << n << " members";
        }
      };
      const SharedArena arena = layout.arena(memory, 0);
      for (int member = 0; member < n; ++member) {
        expect_owner(arena.ranges(member).data(), arena.ranges(member).size_bytes(), member);
        expect_owner(arena.stage(member).data(), arena.stage(member).size(), member);
        if (slot_bytes == 0) continue;
        for (std::uint64_t chunk = 0; chunk < 2; ++chunk) {
          EXPECT_EQ((arena.slot(member, chunk) - memory.data()) % static_cast<std::ptrdiff_t>(sizeof(Page)), 0);
          expect_owner(arena.slot(member, chunk), slot_bytes, member);
        }
        expect_owner(arena.round_area(member).data(), arena.round_area(member).size(), member);
        if (SharedArena::has_buffers(n)) {
          expect_owner(layout.arena(memory, member).buffer(layout.arena(memory, member).small_buffer(0)),
                       SharedArena::kBuffersBytes, member);
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
