// Logger: the level's names, and the lines on standard error.
#include "base/log.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ciranda
