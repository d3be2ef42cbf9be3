#include "membership/store_exchanges.hpp"

#include <gtest/gtest.h>

#include "text_matchers.hpp"

namespace ciranda {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const StoreExchanges::TimePoint kStart{};

ExchangeRequest request(std::uint32_t rank, std::uint32_t size, const std::string& key = "epoch 1",
                        milliseconds timeout = seconds(30)) {
  return {key, rank, size, timeout, Blob(rank + 1, static_cast<std::byte>(rank))};
}

// A rank's connection has the rank's number plus 100.
std::vector<StoreReply> arrive(StoreExchanges& exchanges, const ExchangeRequest& what,
                               StoreExchanges::TimePoint now = kStart) {
  return exchanges.exchange(what.rank + 100, "host" + std::to_string(what.rank), what, now);
}

Result<std::vector<Blob>> read(const StoreReply& reply) { return decode_reply(*reply.message); }

std::vector<ConnectionId> told(const std::vector<StoreReply>& replies) {
  std::vector<ConnectionId> ids;
  for (const StoreReply& each : replies) {
    ids.push_back(each.to);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

TEST(StoreExchanges, EveryoneGetsAllWhenTheLastHasCome) {
  StoreExchanges exchanges(3);
  EXPECT_TRUE(arrive(exchanges, request(2, 3)).empty());
  EXPECT_TRUE(arrive(exchanges, request(0, 3)).empty());
  const auto replies = arrive(exchanges, request(1, 3));
  EXPECT_EQ(told(replies), (std::vector<ConnectionId>{100, 101, 102}));
  for (const StoreReply& each : replies) {
    const auto blobs = read(each);
    ASSERT_TRUE(blobs.ok());
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(blobs.value()[rank], Blob(rank + 1, static_cast<std::byte>(rank)));
    }
  }
  EXPECT_FALSE(exchanges.next_deadline());
}

TEST(StoreExchanges, KeysAreIndependent) {
  StoreExchanges exchanges(2);
  EXPECT_TRUE(arrive(exchanges, request(0, 2, "epoch 1")).empty());
  EXPECT_TRUE(arrive(exchanges, request(1, 2, "epoch 2")).empty());
  EXPECT_EQ(arrive(exchanges, request(1, 2, "epoch 1")).size(), 2U);
  EXPECT_EQ(arrive(exchanges, request(0, 2, "epoch 2")).size(), 2U);
}

TEST(StoreExchanges, EndWhenTheFirstOfThoseWhoWaitLosesPatience) {
  StoreExchanges exchanges(3);
  EXPECT_TRUE(arrive(exchanges, request(0, 3, "epoch 1", seconds(30))).empty());
  EXPECT_TRUE(arrive(exchanges, request(1, 3, "epoch 1", seconds(5)), kStart + seconds(10)).empty());
  EXPECT_EQ(exchanges.next_deadline(), kStart + seconds(15));
  EXPECT_TRUE(exchanges.expire(kStart + seconds(15) - milliseconds(1)).empty());
  const auto replies = exchanges.expire(kStart + seconds(15));
  ASSERT_EQ(told(replies), (std::vector<ConnectionId>{100, 101}));
  EXPECT_TRUE(contains(read(replies[0]).status().message(), "did not come within 5 s"));
}

TEST(StoreExchanges, TheMissingAreNamedWhenPatienceEnds) {
  StoreExchanges exchanges(4);
  arrive(exchanges, request(0, 4));
  arrive(exchanges, request(1, 4), kStart + seconds(3));
  EXPECT_EQ(exchanges.next_deadline(), kStart + seconds(30));
  EXPECT_TRUE(exchanges.expire(kStart + milliseconds(29'999)).empty());
  const auto replies = exchanges.expire(kStart + seconds(30));
  EXPECT_EQ(told(replies), (std::vector<ConnectionId>{100, 101}));
  EXPECT_EQ(read(replies[0]).status().kind(), ErrorKind::kTimeout);
  EXPECT_EQ(read(replies[0]).status().message(), "ranks 2, 3 of 4 did not come within 30 s");
  const auto late = arrive(exchanges, request(2, 4), kStart + seconds(31));
  ASSERT_EQ(told(late), std::vector<ConnectionId>{102});
  EXPECT_TRUE(contains(read(late[0]).status().message(), "ranks 2, 3 of 4"));
}

TEST(StoreExchanges, ALeaverIsNamedToThoseWhoWait) {
  StoreExchanges exchanges(3);
  arrive(exchanges, request(0, 3));
  arrive(exchanges, request(1, 3));
  const auto replies = exchanges.on_disconnect(101);
  EXPECT_EQ(told(replies), std::vector<ConnectionId>{100});
  EXPECT_EQ(read(replies[0]).status().kind(), ErrorKind::kRanksLost);
  EXPECT_TRUE(contains(read(replies[0]).status().message(), "rank 1 (host1) left"));
  EXPECT_TRUE(exchanges.on_disconnect(55).empty()) << "somebody who waits for nothing";
}

TEST(StoreExchanges, ALostRankFailsWhatItHasNotArrivedAt) {
  StoreExchanges exchanges(3);
  arrive(exchanges, request(0, 3, "without"));
  arrive(exchanges, request(1, 3, "with"));
  EXPECT_EQ(told(exchanges.lose(1, "it has ended")), std::vector<ConnectionId>{100});
  const auto later = arrive(exchanges, request(2, 3, "later"));
  ASSERT_EQ(told(later), std::vector<ConnectionId>{102});
  EXPECT_EQ(read(later[0]).status().kind(), ErrorKind::kRanksLost);
  EXPECT_EQ(read(later[0]).status().message(), "rank 1 does not come: it has ended");
  arrive(exchanges, request(0, 3, "with"));
  EXPECT_EQ(told(arrive(exchanges, request(2, 3, "with"))), (std::vector<ConnectionId>{100, 101, 102}));
}

TEST(StoreExchanges, OneThatCannotComeTellsAllWhy) {
  StoreExchanges exchanges(3);
  arrive(exchanges, request(0, 3));
  ExchangeRequest sorry = request(1, 3);
  sorry.why_absent = "no port is free";
  const auto replies = arrive(exchanges, sorry);
  EXPECT_EQ(told(replies), (std::vector<ConnectionId>{100, 101}));
  EXPECT_EQ(read(replies[0]).status().message(), "rank 1 (host1) could not join: no port is free");
  EXPECT_TRUE(contains(read(arrive(exchanges, request(2, 3))[0]).status().message(), "no port is free"));
}

TEST(StoreExchanges, OneThatFindsOutAfterwardsThatItCannotComeTellsAllToo) {
  StoreExchanges exchanges(2);
  arrive(exchanges, request(0, 2));
  arrive(exchanges, request(1, 2));
  ExchangeRequest sorry = request(1, 2);
  sorry.why_absent = "it cannot read this";
  const auto replies = exchanges.exchange(201, "host1", sorry, kStart);
  EXPECT_EQ(told(replies), (std::vector<ConnectionId>{100, 101, 201}));
  EXPECT_EQ(read(replies[0]).status().kind(), ErrorKind::kRanksLost);
  EXPECT_EQ(read(replies[0]).status().message(), "rank 1 (host1) could not join: it cannot read this");
}

TEST(StoreExchanges, DifferentSizesAreAnErrorForAll) {
  StoreExchanges exchanges(3);
  arrive(exchanges, request(0, 3));
  const auto replies = arrive(exchanges, request(1, 2));
  EXPECT_EQ(told(replies), (std::vector<ConnectionId>{100, 101}));
  for (const StoreReply& each : replies) {
    EXPECT_EQ(read(each).status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(read(each).status().message(), "rank 1 (host1) was started for a job of 2 ranks"));
    EXPECT_TRUE(contains(read(each).status().message(), "has 3"));
  }
}

TEST(StoreExchanges, TwoOfOneRankAreAnErrorForAll) {
  StoreExchanges exchanges(3);
  arrive(exchanges, request(0, 3));
  arrive(exchanges, request(1, 3));
  const auto replies = exchanges.exchange(200, "elsewhere", request(1, 3), kStart);
  EXPECT_EQ(told(replies), (std::vector<ConnectionId>{100, 101, 200}));
  for (const StoreReply& each : replies) {
    EXPECT_EQ(read(each).status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(read(each).status().message(), "as rank 1: one from host1, one from elsewhere"));
  }
}

}  // namespace
}  // namespace ciranda
