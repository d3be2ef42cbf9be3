// The ring keeps the last records, whole, whoever reads meanwhile.
#include "observe/record_ring.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ciranda {
namespace {

Stages stages_from(std::uint64_t first) {
  Stages stages;
  for (std::size_t i = 0; i < kStageCount; ++i) stages.note(static_cast<Stage>(i), first + i);
  stages.path = Path::kInMemory;
  stages.algorithm = "direct star";
  return stages;
}

TEST(RecordRing, KeepsAllOfARecord) {
  RecordRing ring(4);
  const std::string longest(RecordRing::kMostNameBytes, 'n');
  for (const std::string& name : {std::string(), std::string("x"), std::string("eight888"), longest}) {
    ring.write(
        {name, Collective::kRemoveProcessSet, ErrorKind::kInternal, 0xfffffffe, 63, 1ULL << 40U, DataType::kComplex128},
        stages_from(1ULL << 63U));
    RecordRing::Record record;
    ASSERT_TRUE(ring.read(ring.n_written() - 1, record));
    EXPECT_EQ(record.call.name, name);
    EXPECT_EQ(record.call.collective, Collective::kRemoveProcessSet);
    EXPECT_EQ(record.call.outcome, ErrorKind::kInternal);
    EXPECT_EQ(record.call.process_set, 0xfffffffeU);
    EXPECT_EQ(record.call.lane, 63U);
    EXPECT_EQ(record.call.n_bytes, 1ULL << 40U);
    EXPECT_EQ(record.call.dtype, DataType::kComplex128);
    EXPECT_EQ(record.stages.path, Path::kInMemory);
    EXPECT_EQ(record.stages.algorithm, "direct star");
    for (std::size_t i = 0; i < kStageCount; ++i) EXPECT_EQ(record.stages[static_cast<Stage>(i)], (1ULL << 63U) + i);
  }
}

TEST(RecordRing, TellsLongNamesApart) {
  RecordRing ring(2);
  const std::string same(1000, 'n');
  for (const char* const end : {"a", "b"}) ring.write({same + end}, stages_from(1));
  RecordRing::Record a;
  RecordRing::Record b;
  ASSERT_TRUE(ring.read(1, b));
  EXPECT_EQ(b.call.name.substr(0, 100), same.substr(0, 100));
  EXPECT_LE(b.call.name.size(), RecordRing::kMostNameBytes);
  ring.write({same + "a"}, stages_from(1));
  ASSERT_TRUE(ring.read(2, a));
  EXPECT_NE(a.call.name, b.call.name);
}

TEST(RecordRing, SaysWhatIsGone) {
  RecordRing ring(8);
  RecordRing::Record record;
  for (std::uint64_t n = 0; n < 20; ++n) ring.write({.n_bytes = n}, stages_from(1));
  EXPECT_EQ(ring.capacity(), 8U);
  for (std::uint64_t n = 0; n < 13; ++n) EXPECT_FALSE(ring.read(n, record)) << n;
  for (std::uint64_t n = 13; n < 20; ++n) {
    ASSERT_TRUE(ring.read(n, record)) << n;
    EXPECT_EQ(record.call.n_bytes, n);
  }
}

// Each record's parts are of one number; a reader must never see parts of two.
TEST(RecordRing, GivesNoMixtures) {
  constexpr std::uint64_t kRecords = 20'000;
  const auto ring = std::make_unique<RecordRing>(16);
  std::atomic<bool> is_over{false};
  std::vector<std::thread> readers;
  std::atomic<std::uint64_t> n_seen{0};
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      RecordRing::Record record;
      while (!is_over.load()) {
        const std::uint64_t n = ring->n_written();
        if (n == 0 || !ring->read(n - 1, record)) continue;
        ASSERT_EQ(record.call.n_bytes, n - 1);
        ASSERT_EQ(record.call.name, std::to_string(n - 1));
        ASSERT_EQ(record.stages[Stage::kDone], n - 1 + static_cast<std::uint64_t>(Stage::kDone));
        n_seen.fetch_add(1);
      }
    });
  }
  std::uint64_t n = 0;
  for (; n < kRecords || n_seen.load() < 100; ++n) {
    ring->write({.name = std::to_string(n), .n_bytes = n}, stages_from(n));
  }
  is_over.store(true);
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace ciranda
