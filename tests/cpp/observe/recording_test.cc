// A recording reads what is written in its time, in order, and counts what it has missed; times stay in order.
#include "observe/recording.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "observe/ticks.hpp"

namespace ciranda {
namespace {

Stages now() {
  Stages stages;
  stages.note(Stage::kSubmitted);
  stages.note(Stage::kDone);
  stages.path = Path::kByMessages;
  return stages;
}

std::vector<std::uint64_t> numbers(Recording& recording) {
  std::vector<std::uint64_t> found;
  Record record;
  while (recording.read(record)) found.push_back(record.n_bytes);
  return found;
}

using Numbers = std::vector<std::uint64_t>;

TEST(Recording, ReadsWhatIsWrittenInItsTime) {
  const auto recorder = std::make_shared<Recorder>(16);
  EXPECT_FALSE(recorder->is_on());
  recorder->write({.n_bytes = 1}, now());
  Recording first(recorder);
  EXPECT_TRUE(recorder->is_on());
  recorder->write({.n_bytes = 2}, now());
  {
    Recording second(recorder);
    recorder->write({.n_bytes = 3}, now());
    EXPECT_EQ(numbers(second), Numbers{3});
    EXPECT_EQ(numbers(second), Numbers{});
  }
  EXPECT_TRUE(recorder->is_on());
  recorder->write({.n_bytes = 4}, now());
  EXPECT_EQ(numbers(first), (Numbers{2, 3, 4}));
  EXPECT_EQ(first.n_lost(), 0U);
}

TEST(Recording, ReadsArrivalsIfItWantsThem) {
  const auto recorder = std::make_shared<Recorder>(16);
  Recording calls(recorder);
  recorder->write_arrival("x", Collective::kBroadcast, 5, ticks());
  Recording all(recorder, true);
  recorder->write_arrival("x", Collective::kBroadcast, 0, ticks());
  recorder->write({.n_bytes = 4}, now());
  EXPECT_EQ(numbers(calls), Numbers{4});
  Record record;
  ASSERT_TRUE(all.read(record));
  EXPECT_EQ(record.arrived, 0);
  EXPECT_EQ(record.name, "x");
  EXPECT_EQ(record.collective, Collective::kBroadcast);
  EXPECT_GT(record[Stage::kReady], 0);
  ASSERT_TRUE(all.read(record));
  EXPECT_FALSE(record.arrived);
  EXPECT_EQ(record.n_bytes, 4U);
  EXPECT_FALSE(all.read(record));
}

TEST(Recording, CountsWhatItHasMissed) {
  const auto recorder = std::make_shared<Recorder>(16);
  Recording recording(recorder);
  for (std::uint64_t n = 0; n < 100; ++n) recorder->write({.n_bytes = n}, now());
  const Numbers found = numbers(recording);
  ASSERT_FALSE(found.empty());
  EXPECT_LT(found.size(), 16U);
  EXPECT_EQ(found.front(), recording.n_lost());
  EXPECT_EQ(found.size() + recording.n_lost(), 100U);
  EXPECT_EQ(found.back(), 99U);
}

TEST(Recording, OutlivesWhoeverRecords) {
  auto recorder = std::make_shared<Recorder>(16);
  Recording recording(recorder);
  recorder->write({.name = "x", .n_bytes = 7}, now());
  recorder.reset();
  Record record;
  ASSERT_TRUE(recording.read(record));
  EXPECT_EQ(record.name, "x");
  EXPECT_EQ(record.path, Path::kByMessages);
  EXPECT_EQ(record[Stage::kReady], 0);
}

TEST(Recording, ToldTimesAreThoseOfTheMonotonicClockAndInOrder) {
  const auto recorder = std::make_shared<Recorder>(1024);
  Recording recording(recorder);
  std::int64_t last = monotonic_ns() - 1000;
  Record record;
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t before = monotonic_ns();
    recorder->write({}, now());
    const std::int64_t after = monotonic_ns();
    if (i % 7 != 0) continue;
    while (recording.read(record)) {
      EXPECT_GE(record[Stage::kSubmitted], last);
      EXPECT_GE(record[Stage::kDone], record[Stage::kSubmitted]);
      last = record[Stage::kDone];
    }
    // The clocks are read one after the other, so that is known to some nanoseconds; a thread may lose its core
    // between.
    EXPECT_GE(last, before - 1000);
    EXPECT_LE(last, after + 1000);
  }
}

// One writes, others begin to read and cease: each sees ascending numbers without a gap but for what it has lost.
TEST(Recording, BeginsAndEndsWhileOthersWrite) {
  const auto recorder = std::make_shared<Recorder>(64);
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    for (std::uint64_t n = 0; !is_over.load(); ++n) recorder->write({.n_bytes = n}, now());
  });
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      for (int times = 0; times < 10; ++times) {
        Recording recording(recorder);
        Record record;
        std::uint64_t n_read = 0;
        std::uint64_t first = 0;
        while (n_read < 100) {
          if (!recording.read(record)) {
            std::this_thread::yield();
            continue;
          }
          if (n_read == 0) first = record.n_bytes - recording.n_lost();
          // Numbers go on while nobody reads, but nothing is written then.
          ASSERT_GE(record.n_bytes, first + n_read + recording.n_lost());
          ++n_read;
        }
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  is_over.store(true);
  writer.join();
  EXPECT_FALSE(recorder->is_on());
}

}  // namespace
}  // namespace ciranda
