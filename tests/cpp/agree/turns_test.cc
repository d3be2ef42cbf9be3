// Turns of the lanes of one rank, and how the world's coordinator gives them.
#include "agree/turns.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "agree/coordinator.hpp"

namespace ciranda {
namespace {

using State = Turns::State;

TEST(Turns, ComeInTheOrderInWhichTheyAreGiven) {
  Turns turns;
  LaneTurns world(turns, 0), set(turns, 64);
  turns.give(0, 5);
  turns.give(128, 1);  // of a set without this rank
  turns.give(64, 2);
  turns.give(0, 6);
  EXPECT_EQ(world.of(5), State::kHere);
  EXPECT_EQ(set.of(2), State::kGiven);
  EXPECT_EQ(set.of(3), State::kAwaited);
  EXPECT_EQ(set.of(5), State::kAwaited);  // of another lane
  world.end(5);
  EXPECT_EQ(set.of(2), State::kHere);
  EXPECT_EQ(world.of(6), State::kGiven);
  set.end(2);
  EXPECT_EQ(world.of(6), State::kHere);
}

TEST(Turns, AreGivenUpWithWhatIsNotExecuted) {
  Turns turns;
  LaneTurns world(turns, 0);
  {
    LaneTurns set(turns, 64);
    turns.give(64, 1);
    turns.give(64, 2);
    turns.give(0, 7);
    set.give_up_from(2);
    turns.give(64, 3);
    turns.give(0, 8);
    EXPECT_EQ(set.of(1), State::kHere);
    EXPECT_EQ(set.of(2), State::kAwaited);
    EXPECT_EQ(set.of(3), State::kAwaited);
  }
  EXPECT_EQ(world.of(7), State::kHere);  // the set has ended
  world.end(7);
  EXPECT_EQ(world.of(8), State::kHere);
}

TEST(Turns, ThatTheLogDoesNotGiveNeverCome) {
  Turns turns;
  LaneTurns world(turns, 0), set(turns, 64);
  turns.give(64, 1);
  turns.close();
  EXPECT_EQ(set.of(1), State::kHere);
  EXPECT_EQ(set.of(2), State::kNever);
}

TEST(Turns, AreAskedForOnce) {
  Turns turns;
  LaneTurns set(turns, 64), other(turns, 128);
  other.ask(3);
  set.ask(1);
  const std::vector<TurnMessage> asked = turns.take_asked();
  ASSERT_EQ(asked.size(), 2U);
  EXPECT_EQ(asked[0].lane, 128U);
  EXPECT_EQ(asked[1].log_index, 1U);
  EXPECT_TRUE(turns.take_asked().empty());
}

TEST(Turns, AreInTheLogInTheOrderInWhichTheyAreAskedFor) {
  CoordinatorOptions options;
  options.size = 2;
  Coordinator coordinator(options);
  EXPECT_TRUE(coordinator.on_message(1, TurnMessage{64, 3}, {}).ok());
  EXPECT_TRUE(coordinator.on_relayed({{{{0}, TurnMessage{128, 1}}}, false}, {}).ok());
  const std::vector<LogEntry> entries = coordinator.take_entries(false);
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(std::get<TurnEntry>(entries[0]).lane, 64U);
  EXPECT_EQ(std::get<TurnEntry>(entries[0]).log_index, 3U);
  EXPECT_EQ(std::get<TurnEntry>(entries[1]).lane, 128U);
  EXPECT_TRUE(coordinator.take_entries(false).empty());
}

}  // namespace
}  // namespace ciranda
