// The recorder is on between two steps, and the file has what was recorded then.
#include "observe/recorded_steps.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "observe/binary_format.hpp"
#include "observe/temporary_file.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kEntryBytes = BinaryFormat::kEntryWords * sizeof(std::uint64_t);
const Logger kToStandardError(0, LogLevel::kWarning);

// What each of the file's entries is: its first byte.
std::vector<int> kinds_of(const TemporaryFile& file) {
  const std::string text = file.text();
  std::vector<int> kinds;
  for (std::size_t at = 0; at < text.size(); at += kEntryBytes) kinds.push_back(text[at]);
  return kinds;
}

// The calls and steps of a look come in any order.
std::vector<int> sorted_kinds_of(const TemporaryFile& file) {
  std::vector<int> kinds = kinds_of(file);
  std::ranges::sort(kinds);
  return kinds;
}

void record_a_call(const std::shared_ptr<Recorder>& recorder) {
  Stages stages;
  stages.note(Stage::kSubmitted);
  stages.note(Stage::kDone);
  recorder->write({"x"}, stages);
}

TEST(RecordedSteps, AreThoseBetweenTwo) {
  const TemporaryFile file;
  const auto recorder = std::make_shared<Recorder>();
  RecordedSteps steps({.path = file.name(), .from = 2, .until = 3}, recorder, kToStandardError);
  for (int step = 1; step <= 4; ++step) {
    record_a_call(recorder);
    EXPECT_EQ(recorder->is_on(), step == 3);
    steps.count_step();
  }
  EXPECT_EQ(sorted_kinds_of(file), (std::vector<int>{0, 1, 2, 3, 3})) << "begin, a name, a call, steps 2 and 3";
}

TEST(RecordedSteps, AreAllWithoutLimits) {
  const TemporaryFile file;
  const auto recorder = std::make_shared<Recorder>();
  for (int world = 0; world < 2; ++world) {
    RecordedSteps steps({.path = file.name()}, recorder, kToStandardError);
    record_a_call(recorder);
    steps.end();
    EXPECT_FALSE(recorder->is_on());
    steps.count_step();
  }
  EXPECT_EQ(kinds_of(file), (std::vector<int>{0, 1, 2, 0, 1, 2})) << "the second world is behind the first";
}

TEST(RecordedSteps, AreThoseFromStartToStop) {
  const TemporaryFile file;
  const TemporaryFile another;
  const auto recorder = std::make_shared<Recorder>();
  RecordedSteps steps({}, recorder, kToStandardError);
  const auto make_step = [&] {
    record_a_call(recorder);
    steps.count_step();
  };
  make_step();
  EXPECT_FALSE(recorder->is_on());
  steps.start(file.name());
  EXPECT_EQ(recorder->start().capacity(), Recorder::kMostRecordedSteps);
  recorder->stop();
  make_step();
  steps.start(file.name());  // goes on
  steps.start(another.name());
  make_step();
  steps.stop();
  steps.stop();
  make_step();
  EXPECT_FALSE(recorder->is_on());
  for (const TemporaryFile* each : {&file, &another}) {
    EXPECT_EQ(sorted_kinds_of(*each), (std::vector<int>{0, 1, 2, 3})) << "begin, a name, a call, a step";
  }
  steps.start(file.name());
  steps.end();
  steps.start(another.name());
  EXPECT_FALSE(recorder->is_on()) << "the world has ended";
  EXPECT_EQ(sorted_kinds_of(file), (std::vector<int>{0, 0, 1, 2, 3})) << "begun again";
}

TEST(RecordedSteps, OfTheWholeJobAreKept) {
  const TemporaryFile file;
  const TemporaryFile another;
  RecordedSteps steps({.path = file.name()}, std::make_shared<Recorder>(), kToStandardError);
  steps.start(another.name());
  steps.stop();
  steps.count_step();
  steps.end();
  EXPECT_EQ(kinds_of(file), (std::vector<int>{0, 3}));
  EXPECT_EQ(kinds_of(another), std::vector<int>{});
}

TEST(RecordedSteps, OfOneWorldAtATimeAreInAFile) {
  const TemporaryFile file;
  RecordedSteps steps({.path = file.name()}, std::make_shared<Recorder>(), kToStandardError);
  ::testing::internal::CaptureStderr();
  { const RecordedSteps others({.path = file.name()}, std::make_shared<Recorder>(), kToStandardError); }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("another process does"), std::string::npos) << said;
  steps.end();
  EXPECT_EQ(kinds_of(file), (std::vector<int>{0}));
}

TEST(RecordedSteps, WithoutAFileSaySo) {
  ::testing::internal::CaptureStderr();
  RecordedSteps steps({.path = "/nonexistent/records"}, std::make_shared<Recorder>(), kToStandardError);
  steps.count_step();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("cannot be written to /nonexistent/records"), std::string::npos) << said;
}

}  // namespace
}  // namespace ciranda
