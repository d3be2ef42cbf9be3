// PersistentOp and PersistentOps: which states follow which, who holds a name, and how long an operation stays.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "agree/named_participant.hpp"
#include "agree/persistent_ops.hpp"
#include "agree/signatures.hpp"
#include "call_of_one.hpp"

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

TEST(PersistentOps, FindTheSameOneAgainWithoutLookingItUp) {
  PersistentOps ops;
  Participant participant(0, 0, ops);
  for (const char* name : {"x", "y"}) participant.submit(*ops.take(0, name), request(name, allreduce({4})), 1);
  const std::uint64_t n_before = ops.n_lookups();
  PersistentOp* const x = ops.find(0, "x");
  EXPECT_EQ(ops.find(0, "x"), x);
  EXPECT_EQ(ops.n_lookups(), n_before + 1);
  EXPECT_NE(ops.find(0, "y"), x);
  EXPECT_EQ(ops.find(0, "x"), x);
  EXPECT_EQ(ops.n_lookups(), n_before + 3);
  EXPECT_EQ(ops.find(7, "x"), nullptr) << "on another lane";
  ops.release(*x);
  EXPECT_EQ(ops.find(0, "x"), x);
  ops.remove_lane(0);
  EXPECT_EQ(ops.find(0, "x"), nullptr);
  PersistentOp& once = ops.find_or_make(0, "once");
  EXPECT_EQ(ops.find(0, "once"), &once);
  PersistentOps::remove_if_unused(once);
  EXPECT_EQ(ops.find(0, "once"), nullptr);
}

TEST(PersistentOps, AreTakenWhereTheyAreKnown) {
  PersistentOps ops;
  OpHandle handle;
  EXPECT_EQ(ops.take_known(0, "x", &handle), nullptr) << "there is none";
  EXPECT_EQ(ops.find(0, "x"), nullptr) << "nor was one made";
  PersistentOp& x = ops.find_or_make(0, "x");
  EXPECT_EQ(ops.take_known(7, "x"), nullptr) << "on another lane";
  const std::uint64_t n_before = ops.n_lookups();
  EXPECT_EQ(ops.take_known(0, "x", &handle), &x);
  EXPECT_EQ(ops.take_known(0, "x"), nullptr) << "it is in use";
  x.release();
  EXPECT_EQ(ops.take_known(0, "x", &handle), &x);
  EXPECT_EQ(ops.n_lookups(), n_before + 2) << "none by the handle";
}

// A call with a name of its own, of one tensor, has its request kept for the next.
TEST(PersistentOps, KeepTheRequestOfACall) {
  constexpr std::array<std::int64_t, 1> kShape{4};
  std::array<float, 4> values{};
  testing::CallOfOne call({}, "x");
  call.tensor.shape = kShape;
  call.tensor.memory = {reinterpret_cast<const std::byte*>(values.data()), reinterpret_cast<std::byte*>(values.data())};
  PersistentOps ops;
  PersistentOp& x = ops.find_or_make(0, "x");
  const auto made = [&] { return std::make_unique<Request>(make_request(call)); };
  EXPECT_EQ(x.request_again(call), nullptr);
  auto request = made();
  const Request* const first = request.get();
  x.keep(std::move(request));
  testing::CallOfOne other = call;
  other.op = ReduceOp::kMax;
  EXPECT_EQ(x.request_again(other), nullptr);
  const auto again = x.request_again(call);
  EXPECT_EQ(again.get(), first);
  EXPECT_EQ(x.request_again(call), nullptr) << "it is in use";

  request = made();
  request->is_cacheable = false;
  x.keep(std::move(request));
  request = made();
  request->signature.tensors.push_back(request->signature.tensors.front());
  x.keep(std::move(request));
  EXPECT_EQ(x.request_again(call), nullptr);
}

TEST(OpHandles, AreLookedIntoFirst) {
  PersistentOps ops;
  OpHandle handle;
  PersistentOp& x = ops.find_or_make(0, "x");
  Participant participant(0, 0, ops);
  participant.submit(x, request("x", allreduce({4})), 1);  // pending: it stays
  const std::uint64_t n_before = ops.n_lookups();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(ops.take(0, "x", &handle), &x);
    EXPECT_EQ(ops.n_lookups(), n_before + 1) << "for the first call";
    ops.release(x);
    EXPECT_EQ(ops.find(0, "x", &handle), &x);
  }
  ASSERT_NE(ops.take(0, "x"), nullptr);
  EXPECT_EQ(ops.take(0, "x", &handle), nullptr) << "it is in use";
}

TEST(OpHandles, OfWhatWasRemovedFindTheOneThatCameAfterIt) {
  PersistentOps ops;
  OpHandle handle;
  ops.release(*ops.take(0, "x", &handle));  // nothing is known of it
  const std::shared_ptr<PersistentOp> removed = handle.op;
  PersistentOp* const next = ops.take(0, "x", &handle);
  ASSERT_NE(next, nullptr);
  EXPECT_NE(next, removed.get());
  EXPECT_EQ(handle.op.get(), next);
  EXPECT_FALSE(removed->take()) << "for ever";
}

TEST(OpHandles, OfOtherOperationsAreNotTakenForOnesOfTheirOwn) {
  OpHandle handle;
  auto before = std::make_unique<PersistentOps>();
  before->find_or_make(0, "x");
  PersistentOps ops;
  EXPECT_NE(before->take(0, "x", &handle), nullptr);
  EXPECT_EQ(ops.find(0, "x", &handle), nullptr);
  const std::shared_ptr<PersistentOp> of_before = handle.op;
  before.reset();
  PersistentOp* const x = ops.take(0, "x", &handle);
  EXPECT_NE(x, of_before.get());
  EXPECT_EQ(handle.op.get(), x);
  EXPECT_NE(ops.take(7, "x", &handle), x) << "on another lane";
  EXPECT_EQ(ops.find(7, "y", &handle), nullptr);
}

// One thread calls, as any may; another, as the holder of the progress lock, ends the calls and removes what is unused.
TEST(OpHandles, AreRefusedNothingThatIsOnlyRemoved) {
  PersistentOps ops;
  std::atomic<PersistentOp*> taken{nullptr};
  std::atomic<bool> is_over{false};
  std::thread holder([&] {
    while (!is_over) {
      if (PersistentOp* const op = taken.load()) {
        PersistentOps::release(*op);
        taken.store(nullptr);
      }
      PersistentOps::remove_if_unused(ops.find_or_make(0, "x"));
      std::this_thread::yield();
    }
  });
  OpHandle handle;
  for (int i = 0; i < 2000; ++i) {
    PersistentOp* const op = ops.take(0, "x", &handle);
    EXPECT_NE(op, nullptr);
    taken.store(op);
    while (taken.load() != nullptr) std::this_thread::yield();
  }
  is_over.store(true);
  holder.join();
}

TEST(OpHandles, OfAWorldThatIsGoneCannotBeTaken) {
  OpHandle handle;
  {
    PersistentOps ops;
    Participant participant(0, 0, ops);
    participant.submit(*ops.take(0, "x", &handle), request("x", allreduce({4})), 1);
    ops.release(*handle.op);
  }
  EXPECT_FALSE(handle.op->take());
}

}  // namespace
}  // namespace ciranda::testing
