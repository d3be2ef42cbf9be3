#include "call/output_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

namespace ciranda {
namespace {

constexpr std::size_t kMiB = 1U << 20;

TEST(OutputBuffer, IsAlignedAndAllItsBytesCanBeWritten) {
  for (const std::size_t n_bytes : {0U, 1U, 63U, 64U, 65U, 4096U, 100'000U}) {
    const OutputBuffer buffer = allocate_output(n_bytes, {static_cast<std::int64_t>(n_bytes)});
    ASSERT_NE(buffer.data, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data.get()) % 64, 0U) << n_bytes;
    EXPECT_EQ(buffer.n_bytes, n_bytes);
    EXPECT_EQ(buffer.shape, (std::vector<std::int64_t>{static_cast<std::int64_t>(n_bytes)}));
    for (std::size_t i = 0; i < n_bytes; ++i) buffer.data.get()[i] = std::byte{0xff};
  }
}

TEST(OutputBuffer, KeepsItselfAlive) {
  std::shared_ptr<std::byte> kept;
  {
    OutputBuffer buffer = allocate_output(64, {64});
    kept = buffer.data;
  }
  kept.get()[63] = std::byte{1};
  EXPECT_EQ(kept.use_count(), 1);
}

// Sizes that would wrap around when they are rounded up.
TEST(OutputBuffer, IsNullWithoutMemory) {
  for (const std::size_t n_bytes : {SIZE_MAX - 63, SIZE_MAX - 10, SIZE_MAX}) {
    const OutputBuffer buffer = allocate_output(n_bytes, {});
    EXPECT_EQ(buffer.data, nullptr) << n_bytes;
    EXPECT_EQ(buffer.n_bytes, 0U) << n_bytes;
  }
}

// --- what is kept

TEST(OutputMemory, GivesOutAgainWhatWasGivenBack) {
  const OutputMemory memory;
  const std::byte* before = memory.allocate(3 * kMiB, {}).data.get();
  const OutputBuffer other = allocate_output(3 * kMiB, {});  // would get it, were it free
  const OutputBuffer again = memory.allocate(3 * kMiB - 100, {7});
  EXPECT_EQ(again.data.get(), before);
  EXPECT_EQ(again.n_bytes, 3 * kMiB - 100);
  EXPECT_EQ(again.shape, std::vector<std::int64_t>{7});
  std::memset(again.data.get(), 1, again.n_bytes);
}

TEST(OutputMemory, GivesOutWhatIsInUseToNobodyElse) {
  const OutputMemory memory;
  const OutputBuffer first = memory.allocate(kMiB, {});
  const OutputBuffer second = memory.allocate(kMiB, {});
  EXPECT_NE(first.data.get(), second.data.get());
}

TEST(OutputMemory, GivesOutNothingThatIsTooSmallOrMuchTooLarge) {
  const OutputMemory memory;
  const std::byte* small = memory.allocate(kMiB, {}).data.get();
  const OutputBuffer large = memory.allocate(kMiB + 128, {});
  EXPECT_NE(large.data.get(), small);
  const OutputBuffer half = memory.allocate(kMiB / 2, {});
  EXPECT_NE(half.data.get(), small);
  EXPECT_EQ(memory.allocate(kMiB, {}).data.get(), small);
}

TEST(OutputMemory, PrefersWhatWasGivenBackLast) {
  const OutputMemory memory;
  OutputBuffer first = memory.allocate(kMiB, {});
  OutputBuffer second = memory.allocate(kMiB, {});
  const std::byte* last = first.data.get();
  second = {};
  first = {};
  EXPECT_EQ(memory.allocate(kMiB, {}).data.get(), last);
}

TEST(OutputMemory, ResultsOutliveIt) {
  OutputBuffer buffer;
  {
    const OutputMemory memory;
    memory.allocate(kMiB, {});  // kept, and freed with it
    buffer = memory.allocate(2 * kMiB, {});
  }
  std::memset(buffer.data.get(), 1, buffer.n_bytes);
  const OutputBuffer other = allocate_output(2 * kMiB, {});  // would get it, were it free
  EXPECT_NE(other.data.get(), buffer.data.get());
  std::memset(other.data.get(), 2, other.n_bytes);
  const std::span<const std::byte> bytes(buffer.data.get(), buffer.n_bytes);
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte each) { return each == std::byte{1}; }));
}

TEST(OutputMemory, ThreadsGetMemoryOfTheirOwn) {
  const OutputMemory memory;
  std::vector<int> n_wrong(2);
  std::vector<std::thread> threads;
  for (int who = 0; who < 2; ++who) {
    threads.emplace_back([&memory, &n_wrong, who] {
      for (int i = 0; i < 2000; ++i) {
        const OutputBuffer buffer = memory.allocate(OutputMemory::kLeastKept, {});
        auto* values = reinterpret_cast<volatile int*>(buffer.data.get());
        values[0] = who;
        values[100] = who;
        n_wrong[static_cast<std::size_t>(who)] += values[0] != who || values[100] != who;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong, std::vector<int>(2));
}

}  // namespace
}  // namespace ciranda
