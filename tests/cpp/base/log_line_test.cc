// The forms of a line of the log.
#include "base/log_line.hpp"

#include <gtest/gtest.h>

namespace ciranda {
namespace {

const LogLine kLine{LogLevel::kInfo, 3, "host\"B", 12, 1'700'000'000'012'345, "two\nlines \\ \xff"};

TEST(LogLine, IsShort) {
  EXPECT_EQ(format_line(kLine, LogFormat::kShort), "ciranda: info: [rank 3] two\nlines \\ \xff\n");
}

TEST(LogLine, IsText) {
  EXPECT_EQ(format_line(kLine, LogFormat::kText),
            "2023-11-14T22:13:20.012345Z ciranda: info: [rank 3 host\"B step 12] two\nlines \\ \xff\n");
}

TEST(LogLine, IsOneLineOfJsonWhateverTheTextHas) {
  EXPECT_EQ(format_line(kLine, LogFormat::kJson),
            R"({"time":"2023-11-14T22:13:20.012345Z","level":"info","rank":3,"host":"host\"B","step":12,)"
            R"("message":"two\u000alines \\ \ufffd"})"
            "\n");
}

}  // namespace
}  // namespace ciranda
