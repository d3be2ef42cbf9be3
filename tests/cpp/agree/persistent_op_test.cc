// PersistentOp and PersistentOps: which states follow which, who holds a name, and how long an operation stays.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "agree/named_participant.hpp"
#include "agree/persistent_ops.hpp"
#include "agree/signatures.hpp"

namespace ciranda::testing {
namespace {

using State = PersistentOp::State;

TEST(PersistentOp, GoesFromStateToStateAsTheTableSays) {
  const std::set<std::pair<State, State>> legal{
      {State::kIdle, State::kIdle},       {State::kIdle, State::kHeld},
      {State::kIdle, State::kReported},   {State::kIdle, State::kInMemory},
      {State::kIdle, State::kByMessages}, {State::kHeld, State::kReported},
      {State::kReported, State::kIdle},   {State::kReported, State::kReported},
      {State::kInMemory, State::kIdle},   {State::kInMemory, State::kReported},
      {State::kByMessages, State::kIdle}, {State::kByMessages, State::kReported},
  };
  for (std::size_t from = 0; from < PersistentOp::kStates; ++from) {
    for (std::size_t to = 0; to < PersistentOp::kStates; ++to) {
      const std::pair step{static_cast<State>(from), static_cast<State>(to)};
      EXPECT_EQ(PersistentOp::may_follow(step.first, step.second), legal.contains(step)) << from << " to " << to;
    }
  }
}

TEST(PersistentOps, AreHeldByOneCallAtATimeOnEachLane) {
  PersistentOps ops;
  PersistentOp* const a = ops.take(0, "a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(ops.take(0, "a"), nullptr);
  EXPECT_NE(ops.take(1, "a"), nullptr);
  ops.release(*a);
  EXPECT_NE(ops.take(0, "a"), nullptr);
}

TEST(PersistentOps, StayWhileTheyAreInUseOrKnown) {
  PersistentOps ops;
  Participant participant(0, 0, ops);
  PersistentOp* const a = ops.take(0, "a");
  participant.submit(*a, request("a", allreduce({4})), 1);
  ExecuteItem item;
  item.cache_id = 0;
  item.is_defined_here = true;
  item.name = "a";
  ASSERT_TRUE(participant.apply(ExecuteEntry{{item}}).ok());
  EXPECT_EQ(a->state(), State::kIdle);
  ops.release(*a);
  EXPECT_EQ(ops.find(0, "a"), a) << "it has a cache id";

  PersistentOp* const once = ops.take(0, "once");
  participant.submit(*once, request("once", allreduce({4})), 2);
  item.cache_id = kNoCacheId;
  item.name = "once";
  ASSERT_TRUE(participant.apply(ExecuteEntry{{item}}).ok());
  EXPECT_EQ(ops.find(0, "once"), once) << "it is in use";
  ops.release(*once);
  EXPECT_EQ(ops.find(0, "once"), nullptr);
}

TEST(PersistentOps, OfALaneThatIsNoMoreGoWhenTheyAreReleased) {
  PersistentOps ops;
  Participant participant(0, 7, ops);
  PersistentOp* const a = ops.take(7, "a");
  PersistentOp* const b = ops.take(7, "b");
  PersistentOp* const other = ops.take(0, "a");
  participant.submit(*a, request("a", allreduce({4})), 1);
  ops.release(*b);
  ops.remove_lane(7);
  EXPECT_EQ(ops.find(7, "a"), a);
  EXPECT_EQ(ops.find(7, "b"), nullptr);
  EXPECT_EQ(ops.find(0, "a"), other);
  ops.release(*a);
  EXPECT_EQ(ops.find(7, "a"), nullptr);
}

}  // namespace
}  // namespace ciranda::testing
