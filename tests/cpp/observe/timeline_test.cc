// The file: readable while it is written, complete at the end, and no call's trouble when it takes no more.
#include "observe/timeline.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "observe/temporary_file.hpp"
#include "observe/trace_format.hpp"

namespace ciranda {
namespace {

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

Stages stages() {
  Stages noted;
  for (const Stage stage : {Stage::kSubmitted, Stage::kAgreed, Stage::kDone})
    noted.note(stage, ticks() + 1000 * static_cast<unsigned>(stage));
  return noted;
}

std::unique_ptr<RecordFormat> trace_format() { return std::make_unique<TraceFormat>(0, false); }

const Logger kLogger(0, LogLevel::kWarning);

TEST(Timeline, IsReadableWhileItIsWritten) {
  const TemporaryFile file;
  const auto recorder = std::make_shared<Recorder>();
  auto timeline = Timeline::create({file.name()}, trace_format(), recorder, kLogger);
  ASSERT_TRUE(timeline.ok());
  recorder->write({"x"}, stages());
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (count_of("ALLREDUCE", file.text()) < 2 && std::chrono::steady_clock::now() < give_up)
    std::this_thread::yield();
  EXPECT_EQ(count_of("NEGOTIATE_ALLREDUCE", file.text()), 1U);
  EXPECT_EQ(file.text().back(), '}');
  recorder->write({"y"}, stages());
  timeline.value().reset();
  EXPECT_TRUE(file.text().ends_with("\n]\n"));
  EXPECT_EQ(count_of("NEGOTIATE_ALLREDUCE", file.text()), 2U);
  EXPECT_FALSE(recorder->is_on());
}

TEST(Timeline, TellsWhatItLacks) {
  const TemporaryFile file;
  const auto recorder = std::make_shared<Recorder>(64);
  auto timeline = Timeline::create({file.name()}, trace_format(), recorder, kLogger);
  ASSERT_TRUE(timeline.ok());
  constexpr std::size_t kCalls = 20'000;
  ::testing::internal::CaptureStderr();
  for (std::size_t n = 0; n < kCalls; ++n) recorder->write({"x"}, stages());
  timeline.value().reset();
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::size_t n_written = count_of("NEGOTIATE_", file.text());
  EXPECT_GT(n_written, 0U);
  EXPECT_GE(count_of("RECORDS_LOST", file.text()), 1U);
  EXPECT_NE(said.find("lacks " + std::to_string(kCalls - n_written) + " calls"), std::string::npos) << said;
}

TEST(Timeline, DoesNotWaitForWhoReadsAPipe) {
  const TemporaryFile file;
  ::unlink(file.name().c_str());
  ASSERT_EQ(::mkfifo(file.name().c_str(), 0600), 0);
  EXPECT_EQ(Timeline::create({file.name()}, trace_format(), std::make_shared<Recorder>(), kLogger).status().kind(),
            ErrorKind::kInvalidArgument);
}

TEST(Timeline, ThatCannotBeWrittenSaysSoOnce) {
  const auto none = Timeline::create({"/nonexistent/timeline"}, trace_format(), std::make_shared<Recorder>(), kLogger);
  EXPECT_EQ(none.status().kind(), ErrorKind::kInvalidArgument);
  EXPECT_EQ(none.status().message(),
            "the timeline cannot be written to /nonexistent/timeline: No such file or directory");
  ::testing::internal::CaptureStderr();
  {
    const auto recorder = std::make_shared<Recorder>();
    const auto full = Timeline::create({"/dev/full"}, trace_format(), recorder, kLogger);
    ASSERT_TRUE(full.ok());
    recorder->write({"x"}, stages());
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of("the timeline /dev/full is incomplete, and goes no further: No space left on device", said), 1U)
      << said;
}

}  // namespace
}  // namespace ciranda
