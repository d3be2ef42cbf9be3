// Settings to a logger: the name of the file, its form, and what else goes to standard error.
#include "base/open_log.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace ciranda {
namespace {

Config with_file(const std::string& file) {
  Config config;
  config.rank = 3;
  config.size = 4;
  config.host = "hostB";
  config.log_file = file;
  return config;
}

std::string named(const std::string& pattern) { return log_file_of(with_file(pattern), "hostB"); }

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string temporary_name(const char* what) {
  return ::testing::TempDir() + "ciranda-log-" + std::to_string(::getpid()) + what;
}

TEST(LogFile, HasANameForEachRank) {
  EXPECT_EQ(named("a.log"), "a.log.3");
  EXPECT_EQ(named("%h/a-%r.log"), "hostB/a-3.log");
  EXPECT_EQ(named("100%%r%"), "100%r%.3");
  EXPECT_EQ(named("%x%r"), "%x3");
  Config alone;
  alone.log_file = "a.log";
  EXPECT_EQ(log_file_of(alone, ""), "a.log");
  alone.job = "j";  // a world of one that may have others
  EXPECT_EQ(log_file_of(alone, ""), "a.log.0");
}

TEST(OpenLog, AppendsToTheFileAndWarnsOnStandardError) {
  Config config = with_file(temporary_name("-%r"));
  config.log_level = "info";
  ::testing::internal::CaptureStderr();
  for (int world = 0; world < 2; ++world) {
    const auto logger = open_log(config);
    ASSERT_TRUE(logger.ok());
    logger.value().count_step();
    logger.value().info([] { return std::string("said"); });
    logger.value().debug([]() -> std::string {
      ADD_FAILURE() << "is below the level";
      return "";
    });
    logger.value().warning("warned");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "ciranda: warning: [rank 3] warned\nciranda: warning: [rank 3] warned\n");
  const std::string text = content_of(temporary_name("-3"));
  ::unlink(temporary_name("-3").c_str());
  EXPECT_NE(text.find("Z ciranda: info: [rank 3 hostB step 1] said\n"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST(OpenLog, WritesTheFormThatIsAskedFor) {
  Config config;
  config.host = "a";
  config.log_format = "json";
  ::testing::internal::CaptureStderr();
  open_log_anyhow(config, 2).warning("x");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(R"(,"level":"warning","rank":2,"host":"a","step":0,)"),
            std::string::npos);
}

TEST(OpenLog, RefusesAFileThatCannotBeWritten) {
  const auto logger = open_log(with_file("/nonexistent/%r"));
  EXPECT_EQ(logger.status().kind(), ErrorKind::kInvalidArgument);
  EXPECT_NE(logger.status().message().find("cannot write to /nonexistent/3: No such file"), std::string::npos);
}

TEST(OpenLog, GoesOnWhereTheDiskIsFull) {
  Config config = with_file("/dev/full");
  config.size = 1;
  config.log_level = "info";
  const auto logger = open_log(config);
  ASSERT_TRUE(logger.ok());
  ::testing::internal::CaptureStderr();
  logger.value().info([] { return std::string("said"); });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "ciranda: info: [rank 3] said\n");
}

}  // namespace
}  // namespace ciranda
