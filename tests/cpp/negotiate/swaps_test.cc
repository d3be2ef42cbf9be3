// Swaps: which inputs go together, and when a call is done or lost. All orders of messages: interleavings_test.cc.
#include "negotiate/swaps.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "negotiate/signatures.hpp"

namespace ciranda::testing {
namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

SwapMessage message(std::uint32_t cache_id, std::uint64_t round, const std::string& input) {
  return {cache_id, round, bytes_of(input)};
}

TEST(Swaps, AreDoneWhenAllInputsAreThereInRankOrder) {
  Swaps swaps(1, 3);
  ASSERT_TRUE(swaps.hear(2, message(7, 4, "cc")).ok());
  ASSERT_TRUE(swaps.begin(message(7, 4, "bb"), 11).ok());
  ASSERT_TRUE(swaps.begin(message(8, 1, "x"), 12).ok());
  EXPECT_TRUE(swaps.take_done().empty());
  ASSERT_TRUE(swaps.hear(0, message(7, 4, "aa")).ok());
  const auto done = swaps.take_done();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].cache_id, 7U);
  EXPECT_EQ(done[0].ticket, 11U);
  EXPECT_EQ(done[0].inputs, bytes_of("aabbcc"));
  EXPECT_FALSE(swaps.empty());  // the other one
}

// A rank that is done goes on; one whose call the log has answered has sent its input in vain.
TEST(Swaps, KeepRoundsApart) {
  Swaps swaps(0, 2);
  ASSERT_TRUE(swaps.begin(message(0, 1, "a"), 1).ok());
  swaps.forget(1);
  ASSERT_TRUE(swaps.begin(message(0, 2, "b"), 2).ok());
  ASSERT_TRUE(swaps.hear(1, message(0, 1, "A")).ok());
  EXPECT_TRUE(swaps.take_done().empty());
  ASSERT_TRUE(swaps.hear(1, message(0, 2, "B")).ok());
  EXPECT_EQ(swaps.take_done().at(0).inputs, bytes_of("bB"));
  ASSERT_TRUE(swaps.hear(1, message(0, 3, "C")).ok());
  ASSERT_TRUE(swaps.begin(message(0, 3, "c"), 3).ok());
  EXPECT_EQ(swaps.take_done().at(0).inputs, bytes_of("cC"));
}

TEST(Swaps, LetGoOfWhatComesLateForARoundThatTheLogDecided) {
  Swaps swaps(0, 3);
  ASSERT_TRUE(swaps.begin(message(0, 3, "d"), 1).ok());
  ASSERT_TRUE(swaps.hear(1, message(0, 1, "x")).ok());
  ASSERT_TRUE(swaps.hear(1, message(0, 3, "e")).ok());
  ASSERT_TRUE(swaps.hear(2, message(0, 3, "f")).ok());
  EXPECT_EQ(swaps.take_done().at(0).inputs, bytes_of("def"));
}

TEST(Swaps, RefuseWhatFitsNotOrComesTwice) {
  Swaps swaps(0, 2);
  ASSERT_TRUE(swaps.begin(message(0, 1, "aa"), 1).ok());
  EXPECT_EQ(swaps.hear(1, message(0, 1, "b")).kind(), ErrorKind::kInternal);
  ASSERT_TRUE(swaps.hear(1, message(0, 1, "bb")).ok());
  EXPECT_EQ(swaps.hear(1, message(0, 1, "bb")).kind(), ErrorKind::kInternal);
}

TEST(Swaps, AreLostWhenAnInputWillNotCome) {
  Swaps swaps(0, 3);
  ASSERT_TRUE(swaps.begin(message(0, 1, "a"), 1).ok());
  ASSERT_TRUE(swaps.begin(message(1, 1, "a"), 2).ok());
  ASSERT_TRUE(swaps.hear(1, message(0, 1, "b")).ok());
  EXPECT_TRUE(swaps.lost().empty());
  swaps.hear_end(1);
  EXPECT_EQ(swaps.lost(), std::vector<Swaps::Ticket>{2});  // the other may still be done
  ASSERT_TRUE(swaps.hear(2, message(0, 1, "c")).ok());
  EXPECT_EQ(swaps.take_done().at(0).ticket, 1U);
  swaps.forget(2);
  EXPECT_TRUE(swaps.empty());
}

TEST(Swaps, AreForSmallPlainAllreduces) {
  EXPECT_TRUE(may_swap(allreduce({1024}), 2));
  EXPECT_FALSE(may_swap(allreduce({1025}), 2));
  EXPECT_FALSE(may_swap(allreduce({0}), 2));
  EXPECT_FALSE(may_swap(allgather({4}), 2));
  Signature adasum = allreduce({4});
  adasum.op = ReduceOp::kAdasum;
  EXPECT_FALSE(may_swap(adasum, 2));
  Signature weighted = allreduce({4});
  weighted.is_weighted = true;
  EXPECT_FALSE(may_swap(weighted, 2));
}

}  // namespace
}  // namespace ciranda::testing
