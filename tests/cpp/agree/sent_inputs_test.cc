// SentInputs: which inputs go together, and when a call is done or lost. All orders of messages:
// interleavings_test.cc.
#include "agree/sent_inputs.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "agree/signatures.hpp"

namespace ciranda::testing {
namespace {

InputMessage message(std::uint32_t cache_id, std::uint64_t round, const std::string& input) {
  return {cache_id, round, Payload(bytes_of(input))};
}

std::string joined(const SentInputs::Done& done) {
  std::string all;
  for (const Payload& input : done.inputs) {
    for (const std::byte byte : input.bytes()) all += static_cast<char>(byte);
  }
  return all;
}

TEST(SentInputs, AreDoneWhenAllInputsAreThereInRankOrder) {
  SentInputs by_messages(1, 3);
  ASSERT_TRUE(by_messages.on_input(2, message(7, 4, "cc")).ok());
  ASSERT_TRUE(by_messages.begin(message(7, 4, "bb"), 11).ok());
  ASSERT_TRUE(by_messages.begin(message(8, 1, "x"), 12).ok());
  EXPECT_TRUE(by_messages.take_done().empty());
  ASSERT_TRUE(by_messages.on_input(0, message(7, 4, "aa")).ok());
  const auto done = by_messages.take_done();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].cache_id, 7U);
  EXPECT_EQ(done[0].ticket, 11U);
  EXPECT_EQ(done[0].last, 0);
  EXPECT_EQ(joined(done[0]), "aabbcc");
  EXPECT_FALSE(by_messages.empty());  // the other one
}

// A rank that is done goes on; one whose call the log has answered has sent its input in vain.
TEST(SentInputs, KeepRoundsApart) {
  SentInputs by_messages(0, 2);
  ASSERT_TRUE(by_messages.begin(message(0, 1, "a"), 1).ok());
  by_messages.forget(1);
  ASSERT_TRUE(by_messages.begin(message(0, 2, "b"), 2).ok());
  ASSERT_TRUE(by_messages.on_input(1, message(0, 1, "A")).ok());
  EXPECT_TRUE(by_messages.take_done().empty());
  ASSERT_TRUE(by_messages.on_input(1, message(0, 2, "B")).ok());
  EXPECT_EQ(joined(by_messages.take_done().at(0)), "bB");
  ASSERT_TRUE(by_messages.on_input(1, message(0, 3, "C")).ok());
  ASSERT_TRUE(by_messages.begin(message(0, 3, "c"), 3).ok());
  EXPECT_EQ(joined(by_messages.take_done().at(0)), "cC");
}

TEST(SentInputs, LetGoOfWhatComesLateForARoundThatTheLogDecided) {
  SentInputs by_messages(0, 3);
  ASSERT_TRUE(by_messages.begin(message(0, 3, "d"), 1).ok());
  ASSERT_TRUE(by_messages.on_input(1, message(0, 1, "x")).ok());
  ASSERT_TRUE(by_messages.on_input(1, message(0, 3, "e")).ok());
  ASSERT_TRUE(by_messages.on_input(2, message(0, 3, "f")).ok());
  EXPECT_EQ(joined(by_messages.take_done().at(0)), "def");
}

// And of what came early for it nothing counts for the next.
TEST(SentInputs, KeepNothingOfARoundThatTheLogDecided) {
  SentInputs by_messages(0, 3);
  ASSERT_TRUE(by_messages.begin(message(0, 1, "a"), 1).ok());
  ASSERT_TRUE(by_messages.on_input(1, message(0, 1, "b")).ok());
  by_messages.forget(1);
  ASSERT_TRUE(by_messages.on_input(1, message(0, 1, "b")).ok());  // else it would have come twice
  ASSERT_TRUE(by_messages.on_input(2, message(0, 1, "c")).ok());
  ASSERT_TRUE(by_messages.begin(message(0, 3, "d"), 2).ok());
  EXPECT_TRUE(by_messages.take_done().empty());
  ASSERT_TRUE(by_messages.on_input(1, message(0, 3, "e")).ok());
  ASSERT_TRUE(by_messages.on_input(2, message(0, 3, "f")).ok());
  EXPECT_EQ(joined(by_messages.take_done().at(0)), "def");
}

TEST(SentInputs, RefuseWhatFitsNotOrComesTwice) {
  SentInputs by_messages(0, 2);
  ASSERT_TRUE(by_messages.begin(message(0, 1, "aa"), 1).ok());
  EXPECT_EQ(by_messages.on_input(1, message(0, 1, "b")).kind(), ErrorKind::kInternal);
  ASSERT_TRUE(by_messages.on_input(1, message(0, 1, "bb")).ok());
  EXPECT_EQ(by_messages.on_input(1, message(0, 1, "bb")).kind(), ErrorKind::kInternal);
  ASSERT_EQ(by_messages.take_done().size(), 1U);
  EXPECT_EQ(by_messages.on_input(1, message(0, 1, "bb")).kind(), ErrorKind::kInternal);
}

TEST(SentInputs, AreLostWhenAnInputWillNotCome) {
  SentInputs by_messages(0, 3);
  ASSERT_TRUE(by_messages.begin(message(0, 1, "a"), 1).ok());
  ASSERT_TRUE(by_messages.begin(message(1, 1, "a"), 2).ok());
  ASSERT_TRUE(by_messages.on_input(1, message(0, 1, "b")).ok());
  EXPECT_TRUE(by_messages.lost().empty());
  by_messages.on_end(1);
  EXPECT_EQ(by_messages.lost(), std::vector<Ticket>{2});  // the other may still be done
  ASSERT_TRUE(by_messages.on_input(2, message(0, 1, "c")).ok());
  EXPECT_EQ(by_messages.take_done().at(0).ticket, 1U);
  by_messages.forget(2);
  EXPECT_TRUE(by_messages.empty());
}

TEST(SentInputs, AreForSmallPlainAllreduces) {
  EXPECT_TRUE(may_go_by_messages(allreduce({1024}), 2, 8192));
  EXPECT_FALSE(may_go_by_messages(allreduce({1025}), 2, 8192));
  EXPECT_FALSE(may_go_by_messages(allreduce({0}), 2, 8192));
  EXPECT_FALSE(may_go_by_messages(allreduce({1}), 2, 7));
  EXPECT_FALSE(may_go_by_messages(allgather({4}), 2, 8192));
  Signature adasum = allreduce({4});
  adasum.op = ReduceOp::kAdasum;
  EXPECT_FALSE(may_go_by_messages(adasum, 2, 8192));
  Signature weighted = allreduce({4});
  weighted.is_weighted = true;
  EXPECT_FALSE(may_go_by_messages(weighted, 2, 8192));
}

}  // namespace
}  // namespace ciranda::testing
