// Participant: what one rank reports, and what it makes of the log; a log that does not fit is refused.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "agree/named_participant.hpp"
#include "agree/signatures.hpp"

namespace ciranda::testing {
namespace {

ExecuteItem definition(std::uint32_t cache_id, std::string name,
                       std::vector<std::vector<std::int64_t>> first_dims = {}) {
  return {cache_id, true, std::move(name), std::move(first_dims), {}, {}};
}
ExecuteItem use(std::uint32_t cache_id) { return {cache_id, false, {}, {}, {}, {}}; }

// The tickets that an entry carries out, in order; the rank is expected to accept the entry.
std::vector<Ticket> execute(NamedParticipant& participant, std::vector<ExecuteItem> items) {
  auto action = participant.apply(ExecuteEntry{std::move(items)});
  EXPECT_TRUE(action.ok()) << action.status().message();
  std::vector<Ticket> tickets;
  if (!action.ok()) return tickets;
  for (const auto& ready : std::get<Participant::Execute>(action.value()).requests) tickets.push_back(ready.ticket);
  return tickets;
}

std::string refusal(NamedParticipant& participant, const LogEntry& entry) {
  const auto action = participant.apply(entry);
  EXPECT_FALSE(action.ok());
  if (!action.ok()) {
    EXPECT_EQ(action.status().kind(), ErrorKind::kInternal);
  }
  return action.status().message();
}

TEST(Participant, ReportsInFullAndThenByCacheId) {
  NamedParticipant participant(1);
  Request a = request("a", allreduce({4}));
  a.is_deferrable = true;
  const Message first = participant.submit(a, 10);
  ASSERT_TRUE(std::holds_alternative<RequestMessage>(first));
  EXPECT_EQ(std::get<RequestMessage>(first).name, "a");
  EXPECT_EQ(std::get<RequestMessage>(first).signature, a.signature);
  EXPECT_TRUE(std::get<RequestMessage>(first).is_deferrable);
  EXPECT_TRUE(std::get<RequestMessage>(first).is_cacheable);
  EXPECT_EQ(execute(participant, {definition(0, "a")}), (std::vector<Ticket>{10}));

  const Message second = participant.submit(a, 11);
  ASSERT_TRUE(std::holds_alternative<ReadyMessage>(second));
  ASSERT_EQ(std::get<ReadyMessage>(second).items.size(), 1U);
  EXPECT_EQ(std::get<ReadyMessage>(second).items[0].cache_id, 0U);
  EXPECT_TRUE(std::get<ReadyMessage>(second).items[0].is_deferrable);
  EXPECT_EQ(execute(participant, {use(0)}), (std::vector<Ticket>{11}));
}

TEST(Participant, ReportsAChangeInFull) {
  NamedParticipant participant(0);
  participant.submit(request("a", allreduce({4})), 1);
  execute(participant, {definition(0, "a")});
  EXPECT_TRUE(std::holds_alternative<RequestMessage>(participant.submit(request("a", allreduce({5})), 2)));
  execute(participant, {definition(0, "a")});
  EXPECT_TRUE(std::holds_alternative<ReadyMessage>(participant.submit(request("a", allreduce({5})), 3)));
}

TEST(Participant, ReportsANewPriorityInFull) {
  NamedParticipant participant(0);
  Request a = request("a", allreduce({4}));
  for (const std::int32_t priority : {0, 3}) {
    a.priority = priority;
    const Message first = participant.submit(a, 1);
    ASSERT_TRUE(std::holds_alternative<RequestMessage>(first));
    EXPECT_EQ(std::get<RequestMessage>(first).priority, priority);
    execute(participant, {definition(0, "a")});
    EXPECT_TRUE(std::holds_alternative<ReadyMessage>(participant.submit(a, 2)));
    execute(participant, {use(0)});
  }
}

// What failed was not agreed on: the signature of before is still the cache id's.
TEST(Participant, KeepsTheAgreedSignatureThroughAFailure) {
  NamedParticipant participant(0);
  participant.submit(request("a", allreduce({4})), 1);
  execute(participant, {definition(0, "a")});
  participant.submit(request("a", allreduce({5})), 2);
  ASSERT_TRUE(participant.apply(FailEntry{"a", ErrorKind::kMismatch, "no", {{0, 0}}}).ok());
  EXPECT_TRUE(std::holds_alternative<RequestMessage>(participant.submit(request("a", allreduce({5})), 3)));
  ASSERT_TRUE(participant.apply(FailEntry{"a", ErrorKind::kMismatch, "no", {{0, 0}}}).ok());
  EXPECT_TRUE(std::holds_alternative<ReadyMessage>(participant.submit(request("a", allreduce({4})), 4)));
}

TEST(Participant, ReportsWithoutACacheIdInFullEveryTime) {
  NamedParticipant participant(0);
  for (Ticket ticket = 0; ticket < 3; ++ticket) {
    EXPECT_TRUE(std::holds_alternative<RequestMessage>(participant.submit(request("a", allreduce({4})), ticket)));
    EXPECT_EQ(execute(participant, {definition(kNoCacheId, "a")}), (std::vector<Ticket>{ticket}));
  }
}

TEST(Participant, CallsARepetitionADuplicate) {
  NamedParticipant participant(0);
  participant.submit(request("a", allreduce({4})), 1);
  const Message again = participant.submit(request("a", allreduce({4})), 2);
  ASSERT_TRUE(std::holds_alternative<DuplicateMessage>(again));
  EXPECT_EQ(std::get<DuplicateMessage>(again).name, "a");
  auto action = participant.apply(FailEntry{"a", ErrorKind::kInvalidArgument, "twice", {{0, 1}, {0, 0}}});
  ASSERT_TRUE(action.ok());
  const auto& failure = std::get<Participant::Fail>(action.value());
  EXPECT_EQ(failure.tickets, (std::vector<Ticket>{1, 2}));
  EXPECT_EQ(failure.status.kind(), ErrorKind::kInvalidArgument);
  EXPECT_EQ(failure.status.message(), "twice");
}

TEST(Participant, AnswersInTheOrderOfTheCalls) {
  NamedParticipant participant(0);
  participant.submit(request("a", allreduce({4})), 1);
  participant.submit(request("a", allreduce({4})), 2);
  EXPECT_EQ(execute(participant, {definition(0, "a")}), (std::vector<Ticket>{1}));
  auto action = participant.apply(FailEntry{"a", ErrorKind::kInvalidArgument, "twice", {{0, 0}}});
  ASSERT_TRUE(action.ok());
  EXPECT_EQ(std::get<Participant::Fail>(action.value()).tickets, (std::vector<Ticket>{2}));
}

TEST(Participant, CarriesOutSeveralInTheOrderOfTheEntry) {
  NamedParticipant participant(0);
  participant.submit(request("a", allreduce({4})), 1);
  participant.submit(request("b", allreduce({4})), 2);
  EXPECT_EQ(execute(participant, {definition(0, "b"), definition(1, "a")}), (std::vector<Ticket>{2, 1}));
}

TEST(Participant, GivesFirstDimensionsAndKeepsThem) {
  NamedParticipant participant(0);
  const std::vector<std::vector<std::int64_t>> dims{{3, 5}};
  participant.submit(request("g", allgather({3, 2})), 1);
  for (int round = 0; round < 2; ++round) {
    auto action = participant.apply(ExecuteEntry{{round == 0 ? definition(0, "g", dims) : use(0)}});
    ASSERT_TRUE(action.ok());
    const auto& ready = std::get<Participant::Execute>(action.value()).requests.front();
    ASSERT_NE(ready.first_dims, nullptr);
    EXPECT_EQ(*ready.first_dims, dims);
    participant.submit(request("g", allgather({3, 2})), 2);
  }
}

TEST(Participant, IgnoresFailuresOfOthers) {
  NamedParticipant participant(2);
  auto action = participant.apply(FailEntry{"never heard of", ErrorKind::kMismatch, "no", {{0, 1}, {-1, -1}}});
  ASSERT_TRUE(action.ok());
  EXPECT_TRUE(std::get<Participant::Fail>(action.value()).tickets.empty());
}

Participant::Cancelled cancelled(NamedParticipant& participant, std::uint64_t round) {
  auto action = participant.apply(CancelEntry{0, round});
  EXPECT_TRUE(action.ok());
  return std::get<Participant::Cancelled>(action.value());
}

// Rank 2 has not got all inputs to the first round when the second, to which others have come, is cancelled.
TEST(Participant, AnswersForTheRoundThatIsCancelled) {
  NamedParticipant participant(2);
  const Request a = request("a", allreduce({4}));
  participant.submit(a, 1);
  ExecuteItem opened = definition(0, "a");
  opened.direct = Direct::kByMessages;
  execute(participant, {opened});
  const auto first = participant.arrive(Direct::kByMessages, a, 2);
  ASSERT_TRUE(first);
  EXPECT_FALSE(cancelled(participant, first->number).answer) << "it has come";
  const auto next = cancelled(participant, first->number + 1).answer;
  ASSERT_TRUE(next);
  EXPECT_EQ(next->round, first->number + 1);
  EXPECT_EQ(participant.rounds().done(participant.names().at(0)), 2U);
  EXPECT_FALSE(participant.arrive(Direct::kByMessages, a, 3)) << "as it has said";
  EXPECT_TRUE(std::holds_alternative<ReadyMessage>(participant.submit(a, 3)));
  execute(participant, {opened});
  EXPECT_FALSE(cancelled(participant, first->number + 1).answer) << "that was long ago";
  EXPECT_EQ(participant.arrive(Direct::kByMessages, a, 4)->number, first->number + 2);
}

TEST(Participant, FindsTheCallThatIsNeverAnswered) {
  NamedParticipant participant(0);
  Request a = request("a", allreduce({4}));
  Request later = request("b", allreduce({4}));
  later.is_deferrable = true;
  participant.submit(a, 1);
  participant.submit(later, 2);
  for (int i = 1; i < PendingCalls::kMostSweeps; ++i) EXPECT_FALSE(participant.calls().sweep(false));
  execute(participant, {definition(0, "a")});
  participant.submit(a, 3);
  for (int i = 1; i < PendingCalls::kMostSweeps; ++i) EXPECT_FALSE(participant.calls().sweep(false));
  EXPECT_EQ(participant.calls().sweep(false), "a");
  execute(participant, {use(0)});
  for (int i = 1; i < PendingCalls::kMostSweeps; ++i) EXPECT_FALSE(participant.calls().sweep(true));
  EXPECT_EQ(participant.calls().sweep(true), "b");
}

TEST(Participant, SaysAgainThatItHasJoined) {
  NamedParticipant participant(0);
  EXPECT_FALSE(participant.calls().join_again());
  for (std::uint64_t nth = 1; nth < 3; ++nth) {
    participant.calls().join(1);
    for (int i = 0; i < 10; ++i) EXPECT_FALSE(participant.calls().sweep(true));
    EXPECT_EQ(participant.calls().join_again()->nth, nth);
    EXPECT_TRUE(participant.apply(JoinedEntry{0}).ok());
    EXPECT_FALSE(participant.calls().join_again());
  }
}

TEST(Participant, KnowsWhetherAnythingIsPending) {
  NamedParticipant participant(0);
  EXPECT_FALSE(participant.calls().any());
  participant.submit(request("a", allreduce({4})), 1);
  participant.submit(request("a", allreduce({4})), 2);
  EXPECT_TRUE(participant.calls().any());
  execute(participant, {definition(0, "a")});
  EXPECT_TRUE(participant.calls().any());
  EXPECT_TRUE(participant.apply(FailEntry{"a", ErrorKind::kInvalidArgument, "twice", {{0, 0}}}).ok());
  EXPECT_FALSE(participant.calls().any());
}

TEST(Participant, RefusesALogThatDoesNotFit) {
  NamedParticipant participant(3);
  EXPECT_EQ(refusal(participant, ExecuteEntry{{use(0)}}), "the log executes cache id 0, which rank 3 has not reported");
  EXPECT_EQ(refusal(participant, ExecuteEntry{{definition(0, "a")}}),
            "the log executes 'a', which rank 3 has not reported");
  EXPECT_EQ(refusal(participant, FailEntry{"a", ErrorKind::kMismatch, "no", {{3, 3}}}),
            "the log fails 'a', which rank 3 has not reported");
  participant.submit(request("a", allreduce({4})), 1);
  EXPECT_EQ(refusal(participant, FailEntry{"a", ErrorKind::kMismatch, "no", {{1, 3}, {3, 5}}}),
            "the log fails 'a', which rank 3 has not reported");
  refusal(participant, ExecuteEntry{{definition(7, "a")}});  // cache ids come one after the other
  execute(participant, {definition(0, "a")});
  refusal(participant, ExecuteEntry{{use(0)}});
  refusal(participant, ExecuteEntry{{use(1)}});
  EXPECT_EQ(refusal(participant, JoinedEntry{0}), "the log says that all ranks have joined, which rank 3 has not");
}

// The name is in use here, in another lane perhaps: this participant may have none of it, and its lane must still hear.
TEST(Participant, ReportsACallThatWasRefusedHere) {
  NamedParticipant participant(0);
  const Message message = participant.submit_duplicate("a", 5);
  ASSERT_TRUE(std::holds_alternative<DuplicateMessage>(message));
  EXPECT_EQ(std::get<DuplicateMessage>(message).name, "a");
  const auto action = participant.apply(FailEntry{"a", ErrorKind::kInvalidArgument, "twice", {{0, 0}}});
  ASSERT_TRUE(action.ok());
  EXPECT_EQ(std::get<Participant::Fail>(action.value()).tickets, (std::vector<Ticket>{5}));
  EXPECT_FALSE(participant.calls().any());
}

// --- direct rounds

// "a" gets cache id 0, and is open to rounds.
void open(NamedParticipant& participant, Direct by) {
  participant.submit(request("a", allreduce({4})), 100);
  ExecuteItem item = definition(0, "a");
  item.direct = by;
  execute(participant, {item});
}

// A round by messages is pending, and the name was called once more: as ticket 2.
void call_twice(NamedParticipant& participant) {
  open(participant, Direct::kByMessages);
  EXPECT_TRUE(participant.arrive(Direct::kByMessages, request("a", allreduce({4})), 1).has_value());
  EXPECT_TRUE(participant.keep_duplicate("a", 2));
  EXPECT_TRUE(participant.calls().take_late().empty()) << "others may have carried out what this would fail";
}

void expect_that_the_duplicate_is_told_now(NamedParticipant& participant) {
  const std::vector<DuplicateMessage> late = participant.calls().take_late();
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late.front().name, "a");
  EXPECT_TRUE(participant.calls().take_late().empty()) << "once";
  EXPECT_FALSE(participant.arrive(Direct::kByMessages, request("a", allreduce({4})), 3).has_value())
      << "the log must answer it first";
  const auto action = participant.apply(FailEntry{"a", ErrorKind::kInvalidArgument, "twice", {{1, 1}}});
  ASSERT_TRUE(action.ok());
  EXPECT_EQ(std::get<Participant::Fail>(action.value()).tickets, std::vector<Ticket>{2});
}

TEST(Participant, TellsOfADuplicateOnceTheRoundIsDone) {
  NamedParticipant participant(1);
  call_twice(participant);
  EXPECT_EQ(participant.rounds().done(participant.names().at(0)), 1U);
  expect_that_the_duplicate_is_told_now(participant);
}

TEST(Participant, TellsOfADuplicateOnceTheLogHasAnsweredTheCall) {
  NamedParticipant executed(1);
  call_twice(executed);
  EXPECT_EQ(execute(executed, {use(0)}), std::vector<Ticket>{1});
  expect_that_the_duplicate_is_told_now(executed);
  NamedParticipant failed(1);
  call_twice(failed);
  EXPECT_TRUE(failed.apply(FailEntry{"a", ErrorKind::kTimeout, "too late", {{0, 2}}}).ok());
  expect_that_the_duplicate_is_told_now(failed);
}

// What closes one name, or finds it closed, is nothing to the others.
TEST(Participant, MeetsForANameWhateverIsClosedForOthers) {
  NamedParticipant participant(0, {8, 1 << 16});
  open(participant, Direct::kInMemory);
  participant.calls().join(1);
  ExecuteItem absent = definition(1, "b");
  absent.signature = allreduce({4});
  absent.absent = {0};
  EXPECT_TRUE(participant.apply(ExecuteEntry{{absent}}).ok());
  EXPECT_TRUE(participant.apply(JoinedEntry{0}).ok());
  EXPECT_EQ(participant.avoid("b"), std::nullopt);
  EXPECT_TRUE(participant.arrive(Direct::kInMemory, request("a", allreduce({4})), 2).has_value());
}

// So that the coordinator hears of the next call of each name.
TEST(Participant, ClosesItsRoundsInMemoryWhenTheLogFailsACall) {
  NamedParticipant participant(0, {8, 1 << 16});
  open(participant, Direct::kInMemory);
  const auto action = participant.apply(FailEntry{"other", ErrorKind::kMismatch, "why", {}});
  ASSERT_TRUE(action.ok());
  const auto& failure = std::get<Participant::Fail>(action.value());
  EXPECT_TRUE(failure.tickets.empty());
  EXPECT_EQ(failure.to_close.size(), 1U);
  EXPECT_FALSE(participant.arrive(Direct::kInMemory, request("a", allreduce({4})), 2).has_value());
}

TEST(Participant, KeepsTheRoundToWhichItHasComeWhenTheLogFailsACall) {
  NamedParticipant participant(0, {8, 1 << 16});
  open(participant, Direct::kInMemory);
  const auto round = participant.arrive(Direct::kInMemory, request("a", allreduce({4})), 2);
  ASSERT_TRUE(round);
  const auto action = participant.apply(FailEntry{"other", ErrorKind::kMismatch, "why", {}});
  ASSERT_TRUE(action.ok());
  EXPECT_TRUE(std::get<Participant::Fail>(action.value()).to_close.empty());
  EXPECT_EQ(participant.rounds().done(*round->op), 2U);
}

TEST(Participant, AvoidsARoundOnce) {
  NamedParticipant participant(0, {8, 1 << 16});
  open(participant, Direct::kInMemory);
  EXPECT_TRUE(participant.avoid("a").has_value());
  EXPECT_FALSE(participant.avoid("a").has_value()) << "it is closed";
  EXPECT_FALSE(participant.arrive(Direct::kInMemory, request("a", allreduce({4})), 2).has_value());
}

// All ranks count the rounds of a cache id, whatever name has it.
TEST(Participant, PassesItsRoundsOnWithTheCacheId) {
  NamedParticipant participant(0, {8, 1 << 16});
  open(participant, Direct::kInMemory);
  const auto of_a = participant.arrive(Direct::kInMemory, request("a", allreduce({4})), 1);
  ASSERT_TRUE(of_a);
  EXPECT_EQ(participant.rounds().done(*of_a->op), 1U);
  const auto action = participant.apply(ForgetEntry{{0}});
  ASSERT_TRUE(action.ok());
  EXPECT_EQ(std::get<Participant::Forgotten>(action.value()).to_close.size(), 1U);
  participant.submit(request("b", allreduce({4})), 2);
  ExecuteItem item = definition(0, "b");
  item.direct = Direct::kInMemory;
  execute(participant, {item});
  const auto of_b = participant.arrive(Direct::kInMemory, request("b", allreduce({4})), 3);
  ASSERT_TRUE(of_b);
  EXPECT_EQ(of_b->number, of_a->number + 2) << "one was closed";
  EXPECT_EQ(of_b->room.number, of_a->room.number);
}

// Others may go on to a round that fails, without this rank.
TEST(Participant, HasNotComeToARoundByMessagesThatIsOpenedWhileItHasJoined) {
  NamedParticipant participant(1);
  const Request a = request("a", allreduce({4}));
  participant.submit(a, 1);
  participant.calls().join(2);
  ExecuteItem item = definition(0, "a");
  item.direct = Direct::kByMessages;
  execute(participant, {item});
  EXPECT_TRUE(participant.apply(JoinedEntry{0}).ok());
  EXPECT_FALSE(participant.arrive(Direct::kByMessages, a, 3));
}

TEST(Participant, ClosesARoundWithoutANameWhereTheNextCallIsReported) {
  NamedParticipant participant(0, {8, 1 << 16});
  for (const bool is_next_reported : {true, false}) {
    Request request = testing::request("noname.0", allreduce({4}));
    request.is_cacheable = false;
    participant.submit(request, 1);
    request.name = "noname.1";
    if (is_next_reported) participant.submit(request, 2);
    ExecuteItem item = definition(kNoCacheId, "noname.0");
    item.direct = Direct::kInMemory;
    const auto action = participant.apply(ExecuteEntry{{item}});
    ASSERT_TRUE(action.ok());
    EXPECT_EQ(std::get<Participant::Execute>(action.value()).to_close.size(), is_next_reported ? 1U : 0U);
    EXPECT_EQ(participant.unnamed().arrive(request, 3).has_value(), !is_next_reported);
    if (is_next_reported) execute(participant, {definition(kNoCacheId, "noname.1")});
  }
}

// --- groups

// "a", "b" and "c" get cache ids 0 to 2, and the first two are a group.
void plan_a_group(NamedParticipant& participant) {
  Ticket ticket = 100;
  for (const char* name : {"a", "b", "c"}) participant.submit(request(name, allreduce({4})), ticket++);
  execute(participant, {definition(0, "a"), definition(1, "b"), definition(2, "c")});
  EXPECT_TRUE(participant.apply(PlanEntry{1, {{0, 1}}}).ok());
}

Request deferrable(std::string name) {
  Request out = request(std::move(name), allreduce({4}));
  out.is_deferrable = true;
  return out;
}

TEST(Participant, ReportsAGroupWhenAllOfItIsThere) {
  NamedParticipant participant(0);
  plan_a_group(participant);
  EXPECT_TRUE(std::get<ReadyMessage>(participant.submit(deferrable("b"), 1)).items.empty());
  EXPECT_TRUE(participant.held().any());
  EXPECT_EQ(std::get<ReadyMessage>(participant.submit(deferrable("c"), 2)).items.size(), 1U);  // in no group
  const Message message = participant.submit(deferrable("a"), 3);
  ASSERT_TRUE(std::holds_alternative<GroupsMessage>(message));
  EXPECT_EQ(std::get<GroupsMessage>(message).plan, 1U);
  EXPECT_EQ(std::get<GroupsMessage>(message).groups, std::vector<std::uint32_t>{0});
  EXPECT_FALSE(participant.held().any());
  const auto action = participant.apply(ExecuteGroupsEntry{1, {0}, Check::kCompare});
  ASSERT_TRUE(action.ok());
  const auto& done = std::get<Participant::Execute>(action.value());
  ASSERT_EQ(done.requests.size(), 2U);
  EXPECT_EQ(done.requests[0].ticket, 3U);
  EXPECT_EQ(done.requests[1].ticket, 1U);
  EXPECT_EQ(done.check, Check::kCompare);
}

TEST(Participant, ReleasesWhatItHolds) {
  NamedParticipant participant(0);
  plan_a_group(participant);
  participant.submit(deferrable("b"), 1);
  const ReadyMessage released = participant.held().release();
  ASSERT_EQ(released.items.size(), 1U);
  EXPECT_EQ(released.items[0].cache_id, 1U);
  EXPECT_TRUE(released.items[0].is_deferrable);
  EXPECT_FALSE(participant.held().any());
  EXPECT_TRUE(participant.held().release().items.empty());
  EXPECT_EQ(execute(participant, {use(1)}), std::vector<Ticket>{1});
}

TEST(Participant, DoesNotHoldWhatIsUrgent) {
  NamedParticipant participant(0);
  plan_a_group(participant);
  const Message message = participant.submit(request("a", allreduce({4})), 1);
  EXPECT_EQ(std::get<ReadyMessage>(message).items.size(), 1U);
}

TEST(Participant, LetsGoWhenGroupsAreMadeAnew) {
  NamedParticipant participant(0);
  plan_a_group(participant);
  participant.submit(deferrable("b"), 1);
  const auto action = participant.apply(PlanEntry{2, {{1, 2}}});
  ASSERT_TRUE(action.ok());
  const auto& planned = std::get<Participant::Planned>(action.value());
  ASSERT_EQ(planned.released.items.size(), 1U);
  EXPECT_EQ(planned.released.items[0].cache_id, 1U);
  EXPECT_EQ(planned.known.plan, 2U);
  EXPECT_TRUE(planned.known.groups.empty());
  EXPECT_TRUE(std::get<ReadyMessage>(participant.submit(deferrable("c"), 2)).items.empty());
}

TEST(Participant, RefusesGroupsThatDoNotFit) {
  NamedParticipant participant(0);
  plan_a_group(participant);
  participant.submit(deferrable("b"), 1);
  EXPECT_NE(refusal(participant, ExecuteEntry{{use(1)}}), "");  // held
  EXPECT_NE(refusal(participant, ExecuteGroupsEntry{1, {0}, Check::kNone}), "");
  EXPECT_NE(refusal(participant, ExecuteGroupsEntry{2, {0}, Check::kNone}), "");
  EXPECT_NE(refusal(participant, ExecuteGroupsEntry{1, {1}, Check::kNone}), "");
  EXPECT_NE(refusal(participant, PlanEntry{2, {{3}}}), "");
  EXPECT_NE(refusal(participant, PlanEntry{2, {{0}, {0}}}), "");
}

}  // namespace
}  // namespace ciranda::testing
