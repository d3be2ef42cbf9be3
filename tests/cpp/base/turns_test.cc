#include "base/turns.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <thread>

namespace ciranda {
namespace {

using std::chrono::seconds;

Turns::Clock::time_point in(seconds time) { return Turns::Clock::now() + time; }

TEST(Turns, EachSideActsAfterTheOther) {
  std::atomic<std::uint64_t> word{0};
  std::string said;  // by whoever's turn it is
  const auto say = [&](Turns::Side side, char what) {
    Turns turns(word, side);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(turns.await(in(seconds(60))));
      said += what;
      turns.pass();
    }
  };
  std::thread second([&] { say(Turns::Side::kSecond, 'b'); });
  say(Turns::Side::kFirst, 'a');
  second.join();
  std::string expected;
  for (int i = 0; i < 1000; ++i) expected += "ab";
  EXPECT_EQ(said, expected);
}

// It can be measured again and again, and turns go on after it.
TEST(Turns, BothSidesMeasureTheLine) {
  std::atomic<std::uint64_t> word{0};
  std::array<std::optional<double>, 2> last;
  const auto measure = [&](Turns::Side side) {
    Turns turns(word, side);
    for (int i = 0; i < 3; ++i) last.at(static_cast<std::size_t>(side)) = turns.one_way_ns(in(seconds(60)));
    EXPECT_TRUE(turns.await(in(seconds(60))));
    turns.pass();
  };
  std::thread second([&] { measure(Turns::Side::kSecond); });
  measure(Turns::Side::kFirst);
  second.join();
  for (const auto& ns : last) {
    ASSERT_TRUE(ns);
    EXPECT_GT(*ns, 0);
    EXPECT_LT(*ns, 1e9);
  }
}

TEST(Turns, NobodyWaitsLongerThanItSays) {
  std::atomic<std::uint64_t> word{0};
  Turns second(word, Turns::Side::kSecond);
  EXPECT_FALSE(second.await(Turns::Clock::now()));
  EXPECT_EQ(second.one_way_ns(Turns::Clock::now()), std::nullopt);
  Turns first(word, Turns::Side::kFirst);
  EXPECT_EQ(first.one_way_ns(Turns::Clock::now()), std::nullopt);
}

}  // namespace
}  // namespace ciranda
