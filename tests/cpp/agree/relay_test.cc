// Relay and RelayTree: who passes to whom; what is gathered, what is passed on as it came, and when a group is split.
#include "agree/relay.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "agree/signatures.hpp"
#include "base/relay_tree.hpp"

namespace ciranda::testing {
namespace {

using Ranks = std::vector<std::int32_t>;
using Hosts = std::vector<std::string>;

TEST(RelayTree, FollowsHosts) {
  const RelayTree tree(Hosts{"b", "a", "b", "a", "c"});
  EXPECT_EQ(tree.n_hosts(), 3);
  EXPECT_EQ(tree.relay_of(2), 0);
  EXPECT_EQ(tree.relay_of(3), 1);
  EXPECT_TRUE(tree.is_relay(4));
  EXPECT_FALSE(tree.is_relay(3));
  EXPECT_EQ(tree.parent(0), -1);
  EXPECT_EQ(tree.parent(4), 0);
  EXPECT_EQ(tree.ranks(0), (Ranks{0, 2}));
  EXPECT_EQ(tree.relays_below(0), (std::vector<int>{1, 4}));
  EXPECT_EQ(tree.subtree(0), (Ranks{0, 1, 2, 3, 4}));
  EXPECT_EQ(tree.subtree(1), (Ranks{1, 3}));
}

TEST(RelayTree, HasTwoHopsForAThousandHosts) {
  for (const int n_hosts : {1, 2, 9, 64, 512, 1024}) {
    Hosts hosts;
    for (int host = 0; host < n_hosts; ++host) hosts.push_back(std::to_string(host));
    const RelayTree tree(hosts);
    std::size_t n_below = 0;
    for (int rank = 0; rank < n_hosts; ++rank) {
      int n_hops = 0;
      for (int at = rank; at != 0; at = tree.parent(at)) ++n_hops;
      EXPECT_LE(n_hops, 2);
      EXPECT_LE(tree.relays_below(rank).size(), 32U);
      for (const int below : tree.relays_below(rank)) EXPECT_EQ(tree.parent(below), rank);
      n_below += tree.relays_below(rank).size();
    }
    EXPECT_EQ(n_below, hosts.size() - 1);
    EXPECT_EQ(tree.subtree(0).size(), hosts.size());
  }
}

// The relay of ranks 0 and 1, with that of ranks 2 and 3 below it. The plan: group 0 of cache ids 0 and 1, group 1 of
// cache id 2.
class RelayTest : public ::testing::Test {
 protected:
  RelayTest() {
    log(PlanEntry{1, {{0, 1}, {2}}});
    log(ExecuteGroupsEntry{1, {0, 1}, Check::kNone});
  }

  void log(LogEntry entry) { relay_.pass_down({{std::move(entry)}}); }
  void hear(int from, Message message) {
    const Status status = relay_.on_message(from, std::move(message));
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void group(int rank, std::uint32_t number) { hear(rank, GroupsMessage{1, {number}}); }
  void from_below(Ranks ranks, ReadyReport report, bool is_waiting = false) {
    hear(2, RelayedMessage{{{std::move(ranks), std::move(report)}}, is_waiting});
  }
  // "0 1: group 0", "all: ...", "1: cache ids 0 2", "...".
  std::vector<std::string> taken() {
    std::vector<std::string> out;
    for (const RelayedMessage::Item& item : relay_.take().items) {
      std::string& text = out.emplace_back();
      for (const std::int32_t rank : item.ranks) text += (text.empty() ? "" : " ") + std::to_string(rank);
      if (text.empty()) text = "all";
      if (const auto* groups = std::get_if<GroupsMessage>(&item.report)) {
        text += groups->groups.empty() ? ": known" : ": group";
        for (const std::uint32_t number : groups->groups) text += " " + std::to_string(number);
      } else if (const auto* ready = std::get_if<ReadyMessage>(&item.report)) {
        text += ": cache id";
        for (const auto& each : ready->items) text += " " + std::to_string(each.cache_id);
      } else if (const auto* request = std::get_if<RequestMessage>(&item.report)) {
        text += ": " + request->name;
      } else if (const auto* duplicate = std::get_if<DuplicateMessage>(&item.report)) {
        text += ": again " + duplicate->name;
      } else {
        text += ": join";
      }
    }
    return out;
  }

  RelayTree tree_{Hosts{"a", "a", "b", "b"}};
  Relay relay_{tree_, 0};
};

using Texts = std::vector<std::string>;

TEST_F(RelayTest, GathersAGroup) {
  for (int step = 0; step < 3; ++step) {
    group(1, 0);
    group(0, 0);
    EXPECT_FALSE(relay_.has_news());
    EXPECT_TRUE(relay_.holds_any());
    from_below({}, GroupsMessage{1, {0}});
    EXPECT_EQ(taken(), Texts{"all: group 0"});
    EXPECT_FALSE(relay_.holds_any());
  }
}

TEST_F(RelayTest, GathersGroupsIntoOneMessage) {
  for (const int rank : {0, 1}) hear(rank, GroupsMessage{1, {1, 0}});
  from_below({}, GroupsMessage{1, {0, 1}});
  EXPECT_EQ(taken(), Texts{"all: group 0 1"});
}

TEST_F(RelayTest, PassesOnCacheIdsAndSplitsTheirGroup) {
  group(1, 0);
  group(0, 1);
  hear(0, ReadyMessage{{{1, true}}});
  EXPECT_EQ(taken(), (Texts{"1: group 0", "0: cache id 1"}));
  from_below({}, GroupsMessage{1, {0, 1}});
  EXPECT_EQ(taken(), Texts{"2 3: group 0"});  // group 1 is not split
  group(1, 1);
  EXPECT_EQ(taken(), Texts{"all: group 1"});
}

TEST_F(RelayTest, IsWholeAgainWhenTheLogExecutes) {
  group(1, 0);
  hear(0, ReadyMessage{{{0, true}, {1, true}}});
  from_below({}, GroupsMessage{1, {0}});
  taken();
  log(ExecuteEntry{{{1, false, {}, {}, {}, {}}}, Check::kNone});
  group(1, 0);
  EXPECT_EQ(taken(), Texts{});
}

TEST_F(RelayTest, SplitsWhatIsSplitBelow) {
  group(0, 0);
  from_below({3}, GroupsMessage{1, {0}});
  EXPECT_EQ(taken(), (Texts{"0: group 0", "3: group 0"}));
  group(1, 0);
  EXPECT_EQ(taken(), Texts{"1: group 0"});
}

TEST_F(RelayTest, LetsGoOfAllBeforeADuplicate) {
  group(0, 0);
  group(1, 1);
  hear(1, DuplicateMessage{"c"});
  EXPECT_EQ(taken(), (Texts{"0: group 0", "1: group 1", "1: again c"}));
}

TEST_F(RelayTest, PassesOnASignatureAtOnce) {
  group(0, 0);
  hear(1, RequestMessage{"a", allreduce({4}), true, true});
  EXPECT_EQ(taken(), Texts{"1: a"});
  EXPECT_TRUE(relay_.holds_any());
}

TEST_F(RelayTest, LetsGoWhenTold) {
  group(0, 0);
  from_below({}, GroupsMessage{1, {0}});
  relay_.let_go();
  EXPECT_EQ(taken(), Texts{"0 2 3: group 0"});
  group(1, 0);
  EXPECT_EQ(taken(), Texts{"1: group 0"});
}

TEST_F(RelayTest, GathersNothingWhileARankHasJoined) {
  group(0, 0);
  hear(1, JoinMessage{});
  EXPECT_EQ(taken(), (Texts{"0: group 0", "1: join"}));
  log(ExecuteGroupsEntry{1, {0}, Check::kNone});  // from before
  group(0, 1);
  EXPECT_EQ(taken(), Texts{"0: group 1"});
  log(JoinedEntry{1});
  log(ExecuteGroupsEntry{1, {0, 1}, Check::kNone});
  group(0, 1);
  EXPECT_EQ(taken(), Texts{});
}

TEST_F(RelayTest, SaysOnceThatARankWaits) {
  EXPECT_FALSE(relay_.has_news());
  hear(1, WaitingMessage{});
  ASSERT_TRUE(relay_.has_news());
  EXPECT_TRUE(relay_.take().is_waiting);
  hear(0, WaitingMessage{});
  EXPECT_FALSE(relay_.has_news());
  group(0, 0);
  group(1, 0);
  from_below({}, GroupsMessage{1, {0}});
  EXPECT_FALSE(relay_.take().is_waiting);
  from_below({3}, ReadyMessage{{{7, true}}}, true);
  EXPECT_TRUE(relay_.take().is_waiting);
}

TEST_F(RelayTest, ForgetsAPlanWhenTheNextComes) {
  group(0, 0);
  log(PlanEntry{2, {{2}}});
  EXPECT_EQ(taken(), Texts{"0: group 0"});
  group(1, 0);  // it does not know the new one yet
  hear(1, GroupsMessage{2, {}});
  EXPECT_EQ(taken(), (Texts{"1: group 0", "1: known"}));
}

TEST_F(RelayTest, GathersANewPlanAfterItsFirstUse) {
  log(PlanEntry{2, {{2}}});
  hear(0, GroupsMessage{2, {0}});
  EXPECT_EQ(taken(), Texts{"0: group 0"});
  log(ExecuteGroupsEntry{2, {0}, Check::kNone});
  hear(0, GroupsMessage{2, {0}});
  EXPECT_EQ(taken(), Texts{});
}

// The coordinator tells of it.
TEST_F(RelayTest, PassesOnWhatIsReportedTwice) {
  group(1, 0);
  group(1, 0);
  EXPECT_EQ(taken(), Texts{"1: group 0"});
  relay_.let_go();
  EXPECT_EQ(taken(), Texts{"1: group 0"});
}

TEST_F(RelayTest, RefusesStrangers) {
  EXPECT_FALSE(relay_.on_message(3, GroupsMessage{1, {0}}).ok());
  EXPECT_FALSE(relay_.on_message(1, RelayedMessage{}).ok());
  EXPECT_FALSE(relay_.on_message(1, PingMessage{}).ok());
}

}  // namespace
}  // namespace ciranda::testing
