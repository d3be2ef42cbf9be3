// The layout of the entries, which the launcher reads; what it makes of them is tested with it.
#include "observe/binary_format.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace ciranda {
namespace {

using Entry = std::array<std::uint64_t, BinaryFormat::kEntryWords>;

std::vector<Entry> entries_of(const std::string& text) {
  EXPECT_EQ(text.size() % sizeof(Entry), 0U);
  std::vector<Entry> entries(text.size() / sizeof(Entry));
  std::memcpy(entries.data(), text.data(), entries.size() * sizeof(Entry));
  return entries;
}

Record named(const std::string& name) {
  return {.name = name,
          .collective = Collective::kBroadcast,
          .path = Path::kPlan,
          .outcome = ErrorKind::kMismatch,
          .process_set = 7,
          .lane = 2,
          .n_bytes = 12,
          .dtype = DataType::kFloat32,
          .at_ns = {1, 2, 3, 4, 5, 6}};
}

TEST(BinaryFormat, HasAnEntryACallAndOneANewName) {
  BinaryFormat format(3, 8);
  std::string text;
  format.begin(1'000'000, text);
  format.add(named("x"), text);
  format.add(named("x"), text);
  format.end(text);
  const std::vector<Entry> entries = entries_of(text);
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(std::memcmp(entries[0].data(), "\0CiraRec", 8), 0);
  EXPECT_EQ(entries[0][1], BinaryFormat::kVersion);
  EXPECT_EQ(entries[0][2], 3U);
  EXPECT_EQ(entries[0][3], 8U);
  EXPECT_EQ(entries[0][5], 1'000'000U);
  EXPECT_EQ(entries[1][0], 1U);
  EXPECT_EQ(entries[1][1], 1ULL << 32U) << "name 0 has a byte";
  EXPECT_EQ(std::memcmp(&entries[1][2], "x\0", 2), 0);
  const Entry call = {2 | 2 << 8U | 6 << 16U | 2 << 24U | 12ULL << 32U, 2ULL << 32U, 7, 12, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(entries[2], call);
  EXPECT_EQ(entries[3], call);
}

TEST(BinaryFormat, DividesLongNames) {
  BinaryFormat format(0, 1);
  std::string text;
  const std::string name = std::string(64, 'a') + std::string(64, 'b') + "c";
  format.add(named(""), text);
  format.add(named(name), text);
  const std::vector<Entry> entries = entries_of(text);
  ASSERT_EQ(entries.size(), 6U);
  EXPECT_EQ(entries[0][1], 0U) << "an empty name has an entry, too";
  for (std::size_t piece = 0; piece < 3; ++piece) EXPECT_EQ(entries[2 + piece][1], 1 | 129ULL << 32U);
  EXPECT_EQ(std::memcmp(&entries[3][2], "bbbbbbbb", 8), 0);
  EXPECT_EQ(std::memcmp(&entries[4][2], "c\0", 2), 0);
}

TEST(BinaryFormat, HasAnEntryANewAlgorithm) {
  BinaryFormat format(0, 1);
  std::string text;
  Record record = named("x");
  for (const char* const algorithm : {"", "shm one-shot", "direct star", "shm one-shot"}) {
    record.algorithm = algorithm;
    format.add(record, text);
  }
  const std::vector<Entry> entries = entries_of(text);
  ASSERT_EQ(entries.size(), 7U) << "a name, four calls, two algorithms";
  EXPECT_EQ(entries[1][0] >> 40U, 0U);
  EXPECT_EQ(entries[2][0], 5U);
  EXPECT_EQ(entries[2][1], 1U);
  EXPECT_STREQ(reinterpret_cast<const char*>(&entries[2][2]), "shm one-shot");
  EXPECT_EQ(entries[3][0] >> 40U, 1U);
  EXPECT_EQ(entries[4][1], 2U);
  EXPECT_EQ(entries[5][0] >> 40U, 2U);
  EXPECT_EQ(entries[6][0] >> 40U, 1U);
}

TEST(BinaryFormat, HasStepsAndLosses) {
  BinaryFormat format(0, 1);
  std::string text;
  format.add_step(5, 70, text);
  format.add_lost(6, 80, text);
  EXPECT_EQ(entries_of(text), (std::vector<Entry>{{3, 5, 70}, {4, 6, 80}}));
}

}  // namespace
}  // namespace ciranda
