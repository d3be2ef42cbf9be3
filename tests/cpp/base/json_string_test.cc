// Any bytes become a string of JSON.
#include "base/json_string.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace ciranda {
namespace {

std::string json(std::string_view text) {
  std::string to = "x";
  append_json_string(text, to);
  return to.substr(1);
}

TEST(JsonString, IsQuotedAndEscaped) {
  EXPECT_EQ(json(""), R"("")");
  EXPECT_EQ(json("a.b [0, 1]"), R"("a.b [0, 1]")");
  EXPECT_EQ(json("\"\\\n\x01\x7f"), "\"\\\"\\\\\\u000a\\u0001\x7f\"");
  EXPECT_EQ(json(std::string_view("\0", 1)), R"("\u0000")");
}

TEST(JsonString, KeepsCharactersAndReplacesWhatIsNone) {
  EXPECT_EQ(json("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
  for (const char* const none : {"\x80", "\xc0", "\xc3", "\xff"}) EXPECT_EQ(json(none), R"("\ufffd")") << none;
  EXPECT_EQ(json("a\xc3(b"), R"("a\ufffd(b")");
  EXPECT_EQ(json("\xe2\x82"), R"("\ufffd\ufffd")");            // cut off
  EXPECT_EQ(json("\xed\xa0\x80"), R"("\ufffd\ufffd\ufffd")");  // a surrogate
  EXPECT_EQ(json("\xe0\x80\xaf"), R"("\ufffd\ufffd\ufffd")");  // longer than needed
  EXPECT_EQ(json("\xf4\x90\x80\x80").size(), 2 + 4 * 6U);      // beyond the last
}

}  // namespace
}  // namespace ciranda
