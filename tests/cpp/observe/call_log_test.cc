// What the log says of calls, at each level.
#include "observe/call_log.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "observe/ticks.hpp"

namespace ciranda {
namespace {

Stages stages(Path path) {
  Stages noted;
  noted.path = path;
  const auto now = ticks();
  for (const Stage stage : {Stage::kSubmitted, Stage::kAgreed, Stage::kDone}) noted.note(stage, now);
  return noted;
}

// The clocks of records and of steps may differ by less than this.
void let_a_moment_pass() {
  constexpr std::int64_t kMomentNs = 100'000;
  for (const std::int64_t end = monotonic_ns() + kMomentNs; monotonic_ns() < end;) {
  }
}

// What is written at this level of calls that take these paths.
std::string log_of(LogLevel level, const std::vector<Path>& paths) {
  const auto recorder = std::make_shared<Recorder>();
  ::testing::internal::CaptureStderr();
  {
    const CallLog log(recorder, Logger(1, level));
    for (const Path path : paths) {
      recorder->write({.name = "grad", .process_set = 2, .n_bytes = 8, .dtype = DataType::kFloat32}, stages(path));
    }
  }
  EXPECT_FALSE(recorder->is_on());
  return ::testing::internal::GetCapturedStderr();
}

TEST(CallLog, HasEachCallAtTrace) {
  EXPECT_EQ(
      log_of(LogLevel::kTrace, {Path::kPlan, Path::kDirect}),
      "ciranda: trace: [rank 1] allreduce 'grad' of process set 2: 8 bytes of float32 by plan in 0.0 us, agreed "
      "after 0.0 us\n"
      "ciranda: debug: [rank 1] allreduce 'grad' of process set 2 goes by a direct round in shared memory, before "
      "by the log\n"
      "ciranda: trace: [rank 1] allreduce 'grad' of process set 2: 8 bytes of float32 by direct in 0.0 us\n");
}

TEST(CallLog, HasOtherWaysAtDebug) {
  EXPECT_EQ(
      log_of(LogLevel::kDebug,
             {Path::kPlan, Path::kPlan, Path::kRepeated, Path::kDirect, Path::kInMemory, Path::kByMessages}),
      "ciranda: debug: [rank 1] allreduce 'grad' of process set 2 goes by a direct round in shared memory, before "
      "by the log\n"
      "ciranda: debug: [rank 1] allreduce 'grad' of process set 2 goes by a direct round by messages, before by a "
      "direct round in shared memory\n");
}

TEST(CallLog, SaysWhatFailed) {
  const auto recorder = std::make_shared<Recorder>();
  ::testing::internal::CaptureStderr();
  {
    const CallLog log(recorder, Logger(0, LogLevel::kTrace));
    recorder->write({.name = "x", .outcome = ErrorKind::kMismatch, .lane = 1}, stages(Path::kNone));
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "ciranda: trace: [rank 0] allreduce 'x' of lane 1: 0 bytes in 0.0 us, agreed after 0.0 us, failed: "
            "Mismatch\n");
}

TEST(CallLog, HasTheStepInWhichACallEnded) {
  const auto recorder = std::make_shared<Recorder>();
  const auto destination = std::make_shared<Logger::Destination>();
  destination->format = LogFormat::kJson;
  ::testing::internal::CaptureStderr();
  {
    CallLog log(recorder, Logger(0, LogLevel::kTrace, destination));
    recorder->write({.name = "a"}, stages(Path::kPlan));
    let_a_moment_pass();
    log.count_step();
    log.count_step();
    let_a_moment_pass();
    recorder->write({.name = "b"}, stages(Path::kPlan));
    let_a_moment_pass();
    log.count_step();
    log.end();
    recorder->write({.name = "c"}, stages(Path::kPlan));
    log.count_step();
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find(R"("step":0,"message":"allreduce 'a')"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("step":2,"message":"allreduce 'b')"), std::string::npos) << text;
  EXPECT_EQ(text.find("'c'"), std::string::npos) << text;
}

TEST(CallLog, SaysHowManyAreMissing) {
  const auto recorder = std::make_shared<Recorder>(4);
  ::testing::internal::CaptureStderr();
  {
    const CallLog log(recorder, Logger(0, LogLevel::kTrace));
    for (int i = 0; i < 100'000; ++i) recorder->write({.name = "x"}, stages(Path::kPlan));
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(" calls are missing here: they completed faster than"),
            std::string::npos);
}

}  // namespace
}  // namespace ciranda
