#include "collective/slot_writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace ciranda {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kBytes = 64 << 10;

// Packs two pieces that lie apart.
void expect_packed(SlotWriter& writer) {
  std::vector<std::byte> tensor(2 * kBytes);
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<std::byte>(i * 7 + i / 256);
  InputPieces pieces;
  pieces.add(tensor.data(), kBytes / 2 + 3);
  pieces.add(tensor.data() + kBytes, kBytes);
  std::vector<std::byte> slot(kBytes);
  writer.gather(pieces, 5, slot);
  EXPECT_TRUE(std::equal(slot.begin(), slot.begin() + kBytes / 2 - 2, tensor.begin() + 5));
  EXPECT_TRUE(std::equal(slot.begin() + kBytes / 2 - 2, slot.end(), tensor.begin() + kBytes));
}

TEST(SlotWriter, PassesByTheCachesAfterASlowCopyAndTriesThemAgain) {
  SlotWriter writer;
  EXPECT_FALSE(writer.passes_caches());
  writer.took(kBytes, microseconds(100));
  int n_past_caches = 0;
  while (writer.passes_caches()) {
    expect_packed(writer);
    ++n_past_caches;
  }
  EXPECT_GT(n_past_caches, 10);
  EXPECT_LT(n_past_caches, 100);
  expect_packed(writer);
}

TEST(SlotWriter, KeepsToTheCachesAfterAQuickCopy) {
  SlotWriter writer;
  writer.took(kBytes, microseconds(100));
  EXPECT_TRUE(writer.passes_caches());
  writer.took(kBytes, microseconds(5));
  EXPECT_FALSE(writer.passes_caches());
  expect_packed(writer);
}

TEST(SlotWriter, LeavesSmallCopiesToTheCaches) {
  SlotWriter writer;
  writer.took(kBytes, microseconds(100));
  const std::vector<std::byte> tensor(100, std::byte{9});
  std::vector<std::byte> slot(100);
  for (int i = 0; i < 100; ++i) writer.gather({tensor.data(), tensor.size()}, 0, slot);
  EXPECT_EQ(slot, tensor);
  EXPECT_TRUE(writer.passes_caches());
}

}  // namespace
}  // namespace ciranda
