// Logger: the level's names, and the lines on standard error.
#include "base/log.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ciranda {
namespace {

TEST(LogLevels, HaveNamesInAnyCase) {
  EXPECT_EQ(log_level_from("trace"), LogLevel::kTrace);
  EXPECT_EQ(log_level_from("DEBUG"), LogLevel::kDebug);
  EXPECT_EQ(log_level_from("Info"), LogLevel::kInfo);
  EXPECT_EQ(log_level_from("warning"), LogLevel::kWarning);
  EXPECT_EQ(log_level_from("error"), LogLevel::kError);
  EXPECT_EQ(log_level_from("FATAL"), LogLevel::kFatal);
}

TEST(LogLevels, AreWarningByAnyOtherName) {
  for (const char* name : {"", "verbose", "warn", "inf", "3"}) EXPECT_EQ(log_level_from(name), LogLevel::kWarning);
}

TEST(Logger, WritesItsLevelAndAbove) {
  const Logger logger(3, LogLevel::kWarning);
  const Logger quieter(3, LogLevel::kError);
  ::testing::internal::CaptureStderr();
  quieter.warning("quiet");
  logger.warning("careful");
  logger.error("broken");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "ciranda: warning: [rank 3] careful\nciranda: error: [rank 3] broken\n");
}

TEST(Logger, LeavesLinesToAnotherThread) {
  const Logger logger(3, LogLevel::kInfo);
  std::vector<std::function<void()>> posted;
  logger.set_post([&](std::function<void()> write) { posted.push_back(std::move(write)); });
  ::testing::internal::CaptureStderr();
  logger.later(LogLevel::kDebug, [] { return std::string("below"); });
  logger.later(LogLevel::kInfo, [] { return std::string("set"); });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_EQ(posted.size(), 1U);
  ::testing::internal::CaptureStderr();
  posted.front()();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "ciranda: info: [rank 3] set\n");
}

}  // namespace
}  // namespace ciranda
