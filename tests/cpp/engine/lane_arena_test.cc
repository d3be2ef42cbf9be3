// The arena that the members of a lane make for themselves: all have it, or none.
#include "execute/lane_arena.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/native.hpp"
#include "engine/world.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

using testing::kLayouts;
using testing::Layout;
using testing::options_for;

constexpr std::size_t kSlotBytes = 4096;

// One member, run by hand.
class ArenaMember {
 public:
  ArenaMember(LoopbackFabric& fabric, int rank, std::size_t slot_bytes)
      : mesh_(fabric.take_mesh(rank)), arena_(*mesh_, slot_bytes, logger_), backend_(*mesh_, {}) {
    work_ = arena_.settle([this] {
      is_settled_ = true;
      return Result<Work>(Work{});
    });
  }

  SharedArena* arena() { return arena_.arena(); }
  bool is_done() const { return is_done_; }

  void step() {
    if (is_done_) return;
    if (!running_ && n_begun_ < work_.plans.size()) {
      running_ = backend_.start(work_.plans[n_begun_++]).collective;
    } else if (running_) {
      if (running_->step() == Progress::kDone) running_.reset();
    } else if (work_.continue_with) {
      Result<Work> next = work_.continue_with();
      ASSERT_TRUE(next.ok()) << next.status().message();
      work_ = std::move(next).value();
      n_begun_ = 0;
    } else {
      is_done_ = true;
      EXPECT_TRUE(is_settled_);
    }
  }

 private:
  std::unique_ptr<Mesh> mesh_;
  Logger logger_{mesh_->rank(), LogLevel::kWarning};
  LaneArena arena_;
  NativeBackend backend_;
  Work work_;
  std::size_t n_begun_ = 0;
  std::unique_ptr<RunningCollective> running_;
  bool is_settled_ = false;
  bool is_done_ = false;
};

std::vector<std::unique_ptr<ArenaMember>> settle(LoopbackFabric& fabric, const std::vector<std::size_t>& slot_bytes) {
  std::vector<std::unique_ptr<ArenaMember>> members;
  for (const std::size_t n_bytes : slot_bytes) {
    members.push_back(std::make_unique<ArenaMember>(fabric, static_cast<int>(members.size()), n_bytes));
  }
  for (int i = 0; i < 1000; ++i) {
    for (const auto& member : members) member->step();
  }
  for (const auto& member : members) EXPECT_TRUE(member->is_done());
  return members;
}

class LaneArenaTest : public ::testing::TestWithParam<std::tuple<int, Layout>> {};

TEST_P(LaneArenaTest, IsThereWhereAllShareMemory) {
  const auto [size, layout] = GetParam();
  LoopbackFabric fabric(size, options_for(layout, size).fabric);
  const auto members = settle(fabric, std::vector(static_cast<std::size_t>(size), kSlotBytes));
  for (const auto& member : members) ASSERT_EQ(member->arena() != nullptr, layout == Layout::kArena);
  if (layout != Layout::kArena) return;
  // One memory, seen from each member's own place in it.
  for (int rank = 0; rank < size; ++rank) {
    SharedArena& own = *members[static_cast<std::size_t>(rank)]->arena();
    ASSERT_EQ(own.member(), rank);
    ASSERT_EQ(own.counter(rank, SharedArena::Counter::kPacked).load(), 0U);
    own.counter(rank, SharedArena::Counter::kPacked).store(static_cast<std::uint64_t>(rank) + 7);
    own.slot(rank, 1)[kSlotBytes - 1] = std::byte{0xab};
  }
  for (const auto& member : members) {
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(member->arena()->counter(rank, SharedArena::Counter::kPacked).load(),
                static_cast<std::uint64_t>(rank) + 7);
      EXPECT_EQ(member->arena()->slot(rank, 1)[kSlotBytes - 1], std::byte{0xab});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, LaneArenaTest,
                         ::testing::Combine(::testing::Values(2, 3), ::testing::ValuesIn(kLayouts)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "ranks" +
                                  to_string(std::get<1>(test.param));
                         });

TEST(LaneArenaFailureTest, NobodyHasItWhereOneCannotOpenIt) {
  LoopbackFabric fabric(3, options_for(Layout::kArena, 3).fabric);
  ::testing::internal::CaptureStderr();
  const auto members = settle(fabric, {kSlotBytes, kSlotBytes, 2 * kSlotBytes});
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warnings.find("gets no memory to share"), std::string::npos) << warnings;
  EXPECT_NE(warnings.find("is not the expected memory"), std::string::npos) << warnings;
  for (const auto& member : members) EXPECT_EQ(member->arena(), nullptr);
}

TEST(LaneArenaFailureTest, NobodyHasItWhereItCannotBeMade) {
  LoopbackFabric fabric(2, options_for(Layout::kArena, 2).fabric);
  ::testing::internal::CaptureStderr();
  const auto members = settle(fabric, std::vector<std::size_t>(2, std::size_t{1} << 58));
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warnings.find("gets no memory to share"), std::string::npos) << warnings;
  for (const auto& member : members) EXPECT_EQ(member->arena(), nullptr);
}

}  // namespace
}  // namespace ciranda
