// Memory that the engine allocates for tensors, to be combined where they lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/world.hpp"

namespace ciranda {
namespace {

using testing::Layout;
using testing::options_for;
using testing::request;
using testing::World;

constexpr std::size_t kSharedCount = 20000;  // too much for one shot
constexpr std::size_t kSharedBytes = kSharedCount * sizeof(float);

// The bits of a sum, the tensors being where `allocate` puts them.
template <typename Allocate>
std::vector<float> sum(Engine& engine, const std::string& name, Allocate allocate) {
  float* values = allocate();
  for (std::size_t i = 0; i < kSharedCount; ++i) {
    values[i] = 1.0F / static_cast<float>(i + 3 * static_cast<std::size_t>(engine.rank()) + 1);
  }
  const auto operation =
      submit_request(engine, request(Collective::kAllreduce, name, DataType::kFloat32, {kSharedCount}, values));
  EXPECT_TRUE(engine.wait(operation).ok());
  return {values, values + kSharedCount};
}

class SharedMemoryTest : public ::testing::TestWithParam<int> {};

TEST_P(SharedMemoryTest, IsReducedInPlaceWithTheSameBits) {
  World world(GetParam(), options_for(Layout::kArena, GetParam()));
  world.run([](Engine& engine) {
    std::vector<float> own(kSharedCount);
    const auto expected = sum(engine, "private", [&] { return own.data(); });
    for (int i = 0; i < 3; ++i) {
      Result<SharedAllocation> allocated = engine.allocate_shared(kSharedBytes);
      ASSERT_TRUE(allocated.ok()) << allocated.status().message();
      ASSERT_TRUE(allocated.value().is_shared);
      const std::byte* bytes = allocated.value().buffer.data.get();
      EXPECT_TRUE(std::all_of(bytes, bytes + kSharedBytes, [](std::byte byte) { return byte == std::byte{0}; }));
      const std::uint64_t before = engine.n_bytes_in_place();
      const auto result =
          sum(engine, "shared", [&] { return reinterpret_cast<float*>(allocated.value().buffer.data.get()); });
      EXPECT_EQ(result, expected);
      EXPECT_EQ(engine.n_bytes_in_place() - before, kSharedBytes);
    }
  });
}

TEST_P(SharedMemoryTest, IsReadWhereItLiesIfSomeRanksHaveNone) {
  World world(GetParam(), options_for(Layout::kArena, GetParam()));
  world.run([](Engine& engine) {
    std::vector<float> own(kSharedCount);
    const auto expected = sum(engine, "private", [&] { return own.data(); });
    Result<SharedAllocation> allocated = engine.allocate_shared(kSharedBytes);
    ASSERT_TRUE(allocated.ok());
    const auto result = sum(engine, "mixed", [&] {
      return engine.rank() == 0 ? own.data() : reinterpret_cast<float*>(allocated.value().buffer.data.get());
    });
    EXPECT_EQ(result, expected);
    EXPECT_EQ(engine.n_bytes_in_place(), 0U);
  });
}

TEST_P(SharedMemoryTest, ServesAgain) {
  World world(GetParam(), options_for(Layout::kArena, GetParam()));
  world.run([](Engine& engine) {
    std::set<const std::byte*> places;
    for (int i = 0; i < 5; ++i) {
      const SharedAllocation one = engine.allocate_shared(kSharedBytes).value();
      const SharedAllocation other =
          engine.allocate_shared(i % 2 == engine.rank() % 2 ? kSharedBytes : 2 * kSharedBytes).value();
      ASSERT_TRUE(one.is_shared && other.is_shared);
      for (const SharedAllocation* each : {&one, &other}) {
        places.insert(each->buffer.data.get());
        EXPECT_EQ(*each->buffer.data, std::byte{0});
      }
      std::memset(one.buffer.data.get(), 1, kSharedBytes);
      const auto result = sum(engine, "sum", [&] { return reinterpret_cast<float*>(other.buffer.data.get()); });
      std::vector<float> own(kSharedCount);
      EXPECT_EQ(result, sum(engine, "private", [&] { return own.data(); }));
    }
    EXPECT_EQ(places.size(), 2U);
    EXPECT_EQ(engine.n_bytes_in_place(), 5 * kSharedBytes);
  });
}

// Mappings of shared memory in this process, which is all ranks.
std::size_t n_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t n = 0;
  for (std::string line; std::getline(maps, line);) n += line.find("/dev/shm/") != std::string::npos ? 1 : 0;
  return n;
}

// Tensors of many sizes, some at the same time, lie in few mappings.
TEST_P(SharedMemoryTest, TakesFewMappings) {
  World world(GetParam(), options_for(Layout::kArena, GetParam()));
  std::atomic<std::size_t> n_before{0};
  world.run([&](Engine& engine) {
    if (engine.rank() == 0) n_before = n_mappings();
    std::deque<SharedAllocation> held;
    for (std::size_t i = 0; i < 300; ++i) {
      held.push_back(engine.allocate_shared(1 + i * 577).value());
      ASSERT_TRUE(held.back().is_shared);
      std::memset(held.back().buffer.data.get(), 1, held.back().buffer.n_bytes);
      if (held.size() > 20) held.pop_front();
    }
  });
  const auto n_ranks = static_cast<std::size_t>(GetParam());
  EXPECT_LE(n_mappings(), n_before + 8 * n_ranks * n_ranks);
}

TEST_P(SharedMemoryTest, OutlivesTheEngine) {
  std::vector<SharedAllocation> kept(static_cast<std::size_t>(GetParam()));
  {
    World world(GetParam(), options_for(Layout::kArena, GetParam()));
    world.run([&](Engine& engine) {
      kept[static_cast<std::size_t>(engine.rank())] = engine.allocate_shared(kSharedBytes).value();
    });
  }
  for (const SharedAllocation& each : kept) std::memset(each.buffer.data.get(), 1, kSharedBytes);
}

// Rounded up it would be little, which would then be written beyond.
TEST_P(SharedMemoryTest, MoreThanThereCanBeIsRefusedAndTheRestGoesOn) {
  World world(GetParam(), options_for(Layout::kArena, GetParam()));
  world.run([](Engine& engine) {
    for (const std::size_t too_many : {SIZE_MAX, SIZE_MAX - kSharedBytes}) {
      const bool asks = engine.rank() == 0;
      EXPECT_EQ(engine.allocate_shared(asks ? too_many : kSharedBytes).ok(), !asks);
      const SharedAllocation allocated = engine.allocate_shared(kSharedBytes).value();
      EXPECT_TRUE(allocated.is_shared);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SharedMemoryTest, ::testing::Values(2, 3, 4));

TEST(SharedMemory, IsOnesOwnWhereRanksShareNone) {
  for (const Layout layout : {Layout::kChannels, Layout::kTwoHosts}) {
    World world(3, options_for(layout, 3));
    world.run([](Engine& engine) {
      const SharedAllocation allocated = engine.allocate_shared(kSharedBytes).value();
      EXPECT_FALSE(allocated.is_shared);
      EXPECT_EQ(allocated.buffer.n_bytes, kSharedBytes);
    });
  }
}

}  // namespace
}  // namespace ciranda
