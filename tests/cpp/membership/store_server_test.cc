#include "membership/store_server.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <optional>
#include <string_view>

#include "membership/store_client.hpp"
#include "membership/stranger.hpp"
#include "membership/test_job.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Credentials credentials_of(const TestJob& job) { return {job.secret(), "job", 0}; }

Result<StoreClient> connect(const TestJob& job, int rank) {
  return StoreClient::connect({job.store_address()}, credentials_of(job), rank, Clock::now() + seconds(10));
}

// All ranks exchange their number, and must get all numbers.
void expect_exchange_works(const TestJob& job, int size, const std::string& key) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&job, size, rank, key] {
      auto client = connect(job, rank);
      ASSERT_TRUE(client.ok()) << client.status().message();
      const auto blobs =
          client.value().exchange(key, size, Blob(1, static_cast<std::byte>(rank)), Clock::now() + seconds(10));
      ASSERT_TRUE(blobs.ok()) << blobs.status().message();
      for (int other = 0; other < size; ++other) {
        EXPECT_EQ(blobs.value()[static_cast<std::size_t>(other)], Blob(1, static_cast<std::byte>(other)));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(StoreServer, ExchangesForEachKeyAnew) {
  TestJob job(4);
  for (const char* key : {"epoch 1", "epoch 2", "epoch 1"}) {
    expect_exchange_works(job, 4, key);
  }
  EXPECT_TRUE(job.refused().empty());
}

TEST(StoreServer, CarriesTheLargestBlobs) {
  TestJob job(2);
  std::thread other([&job] {
    auto client = connect(job, 1);
    EXPECT_TRUE(client.value().exchange("k", 2, Blob(kMostBlobBytes, std::byte{1}), Clock::now() + seconds(10)).ok());
  });
  auto client = connect(job, 0);
  const auto blobs = client.value().exchange("k", 2, Blob(kMostBlobBytes), Clock::now() + seconds(10));
  other.join();
  ASSERT_TRUE(blobs.ok());
  EXPECT_EQ(blobs.value()[1], Blob(kMostBlobBytes, std::byte{1}));
  EXPECT_EQ(client.value().exchange("k", 2, Blob(kMostBlobBytes + 1), Clock::now()).status().kind(),
            ErrorKind::kInvalidArgument);
}

TEST(StoreServer, TheMissingAreNamed) {
  TestJob job(3);
  auto client = connect(job, 1);
  const auto blobs = client.value().exchange("k", 3, {}, Clock::now() + milliseconds(200));
  EXPECT_EQ(blobs.status().kind(), ErrorKind::kTimeout);
  EXPECT_TRUE(contains(blobs.status().message(), "ranks 0, 2 of 3 did not come within 0.2 s"));
}

// A rank that has proved to belong to the job and then says what it likes.
struct Authenticated : Stranger {
  using Stranger::Stranger;
  std::vector<std::byte> sealed(const ExchangeRequest& request) { return messages->seal(encode_request(request)); }

  std::optional<SealedMessages> messages;
};

std::unique_ptr<Authenticated> authenticated(const TestJob& job, std::uint32_t rank) {
  auto stranger = std::make_unique<Authenticated>(job.store_address());
  ConnectingHandshake handshake(credentials_of(job), {Role::kStore, rank, 0, 0}, {});
  while (handshake.verdict() == Verdict::kPending) {
    stranger->say(handshake.take_output());
    std::array<std::byte, Handshake::kMostBytes> bytes;
    EXPECT_TRUE(wait_until_ready(stranger->fd(), POLLIN, Clock::now() + seconds(5)).ok());
    const ssize_t n = recv(stranger->fd(), bytes.data(), handshake.wants(), 0);
    if (n <= 0) {
      break;
    }
    handshake.receive(std::span(bytes).first(static_cast<std::size_t>(n)));
  }
  EXPECT_EQ(handshake.verdict(), Verdict::kAccepted);
  stranger->messages.emplace(handshake.keys());
  return stranger;
}

TEST(StoreServer, ThoseWhoWaitAreToldAtOnceOfOneWhoDied) {
  TestJob job(3);
  auto survivor = connect(job, 0);
  std::thread dying([&job] {
    auto rank = authenticated(job, 1);
    rank->say(rank->sealed({"k", 1, 3, seconds(30), {}}));
    auto unfinished = rank->sealed({"k", 1, 3, seconds(30), {}});
    unfinished.pop_back();
    rank->say(unfinished);
  });
  const auto blobs = survivor.value().exchange("k", 3, {}, Clock::now() + std::chrono::hours(1));
  dying.join();
  EXPECT_EQ(blobs.status().kind(), ErrorKind::kRanksLost);
  EXPECT_TRUE(contains(blobs.status().message(), "rank 1 (127.0.0.1:"));
}

TEST(StoreServer, ThoseWhoWaitAreToldAtOnceOfOneThatIsLost) {
  TestJob job(3);
  auto waiting = authenticated(job, 0);
  waiting->say(waiting->sealed({"k", 0, 3, seconds(30), {}}));
  auto later = connect(job, 1);
  job.store().lose(2, "it has ended");
  EXPECT_TRUE(wait_until_ready(waiting->fd(), POLLIN, Clock::now() + seconds(10)).ok()) << "nobody told it";
  const auto blobs = later.value().exchange("k", 3, {}, Clock::now() + seconds(30));
  EXPECT_EQ(blobs.status().kind(), ErrorKind::kRanksLost);
  EXPECT_EQ(blobs.status().message(), "rank 2 does not come: it has ended");
}

TEST(StoreServer, TellsBothSidesOfAWrongSecret) {
  TestJob job(2);
  Credentials wrong = credentials_of(job);
  wrong.secret[0] ^= std::byte{1};
  const auto client = StoreClient::connect({job.store_address()}, wrong, 0, Clock::now() + seconds(10));
  EXPECT_EQ(client.status().kind(), ErrorKind::kInvalidArgument);
  EXPECT_TRUE(contains(client.status().message(), job.store_address() + " presented a different job secret"));
  EXPECT_TRUE(contains(job.wait_for_refusal(), "presented a different job secret"));
}

TEST(StoreServer, StrangersAreTurnedAwayWhileTheJobGoesOn) {
  TestJob job(4);
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int i = 0; i < 80; ++i) {  // more than may be half-open
    silent.push_back(std::make_unique<Stranger>(job.store_address()));
    silent.back()->say(std::string_view("CIRANDA").substr(0, static_cast<std::size_t>(i) % 8));
  }
  Stranger http(job.store_address());
  http.say("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(http.bytes_until_closed(seconds(5)), 0) << "nothing is told to strangers";
  Stranger garbage(job.store_address());
  garbage.say(std::string(100'000, '\xff'));
  EXPECT_EQ(garbage.bytes_until_closed(seconds(5)), 0);
  EXPECT_EQ(silent[0]->bytes_until_closed(seconds(5)), 0) << "the oldest is dropped";
  EXPECT_EQ(silent[79]->bytes_until_closed(milliseconds(1)), -1) << "the newest is not";
  expect_exchange_works(job, 4, "epoch 1");
}

TEST(StoreServer, AStrangerThatSaysNothingIsTurnedAwayInTime) {
  StoreServerOptions options;
  options.bind = {"127.0.0.1"};
  options.handshake_limit = milliseconds(50);
  std::promise<std::string> refused;
  options.on_refused = [&refused](const std::string& what) { refused.set_value(what); };
  const auto store = StoreServer::start(options);
  ASSERT_TRUE(store.ok()) << store.status().message();
  Stranger silent("127.0.0.1:" + std::to_string(store.value()->port()));
  EXPECT_EQ(silent.bytes_until_closed(seconds(20)), 0);
  auto why = refused.get_future();
  ASSERT_EQ(why.wait_for(seconds(0)), std::future_status::ready);
  EXPECT_TRUE(contains(why.get(), "did not prove in time"));
}

TEST(StoreServer, AnAuthenticatedRankThatSendsNonsenseIsTurnedAway) {
  TestJob job(2);
  for (const std::size_t n_bytes : {0U, 5U, 1'000'000U}) {
    const auto rank = authenticated(job, 1);
    rank->say(rank->messages->seal(std::vector<std::byte>(n_bytes, std::byte{3})));
    EXPECT_GT(rank->bytes_until_closed(seconds(5)), 0) << "it is told why";
  }
  expect_exchange_works(job, 2, "epoch 1");
}

// By somebody between the two, at each byte that is sealed. The rank is told, in a message that opens.
TEST(StoreServer, ARequestThatWasChangedOnItsWayIsNotTaken) {
  TestJob job(2);
  const std::size_t n_bytes = SealedMessages::kHeaderBytes + encode_request({"k", 1, 2, seconds(30), {}}).size();
  for (std::size_t at = 0; at < n_bytes; ++at) {
    const auto rank = authenticated(job, 1);
    auto sealed = rank->sealed({"k", 1, 2, seconds(30), {}});
    ASSERT_EQ(sealed.size(), n_bytes);
    sealed[at] ^= std::byte{1};
    rank->say(sealed);
    const auto reply = receive_message(rank->fd(), *rank->messages, 1000, Clock::now() + seconds(10));
    ASSERT_TRUE(reply.ok()) << reply.status().message();
    const Status told = decode_reply(reply.value()).status();
    EXPECT_EQ(told.kind(), ErrorKind::kRanksLost) << at;
    EXPECT_TRUE(contains(told.message(), "the rank at 127.0.0.1:")) << told.message();
    EXPECT_TRUE(contains(told.message(), "message 0 on its connection is not as it was sealed")) << told.message();
    EXPECT_EQ(rank->bytes_until_closed(seconds(10)), 0);
  }
  expect_exchange_works(job, 2, "epoch 1");
}

TEST(StoreServer, WhatIsSentIsNotSeen) {
  TestJob job(1);
  const auto rank = authenticated(job, 0);
  const std::string_view plain = "where a rank listens";
  const auto bytes = std::as_bytes(std::span(plain));
  const Blob blob(bytes.begin(), bytes.end());
  const auto request = rank->sealed({"k", 0, 1, seconds(30), blob});
  rank->say(request);
  std::vector<std::byte> reply(SealedMessages::kHeaderBytes + encode_blobs(std::vector<Blob>{blob}).size());
  ASSERT_TRUE(wait_until_ready(rank->fd(), POLLIN, Clock::now() + seconds(10)).ok());
  ASSERT_EQ(recv(rank->fd(), reply.data(), reply.size(), MSG_WAITALL), static_cast<ssize_t>(reply.size()));
  for (const auto& sent : {request, reply}) {
    EXPECT_EQ(std::search(sent.begin(), sent.end(), bytes.begin(), bytes.end()), sent.end());
  }
  rank->messages->receive(reply);
  const auto message = rank->messages->next(reply.size());
  ASSERT_TRUE(message.ok() && message.value());
  EXPECT_EQ(decode_reply(*message.value()).value(), std::vector<Blob>{blob});
}

TEST(StoreServer, HasOnePortOnSeveralAddresses) {
  StoreServerOptions options;
  options.bind = {"127.0.0.1", "127.0.0.2", "::1"};
  options.job = "job";
  options.size = 1;
  auto store = StoreServer::start(options);
  ASSERT_TRUE(store.ok()) << store.status().message();
  for (const char* host : {"127.0.0.1:", "127.0.0.2:", "[::1]:"}) {
    const Credentials credentials{options.secret, "job", 0};
    EXPECT_TRUE(
        StoreClient::connect({host + std::to_string(store.value()->port())}, credentials, 0, Clock::now() + seconds(5))
            .ok())
        << host;
  }
}

TEST(StoreServer, APortInUseIsNamed) {
  TestJob job(1);
  StoreServerOptions options;
  options.bind = {"127.0.0.1"};
  options.port_range = std::to_string(job.store().port());
  const auto second = StoreServer::start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_TRUE(contains(second.status().message(), options.port_range));
}

TEST(StoreServer, AnAddressThatIsNoneIsRefused) {
  StoreServerOptions options;
  options.bind = {"nonsense"};
  EXPECT_EQ(StoreServer::start(options).status().kind(), ErrorKind::kInvalidArgument);
}

TEST(StoreClient, TriesAllCandidatesAndNamesThemAll) {
  TestJob job(1);
  EXPECT_TRUE(
      StoreClient::connect({"127.0.0.1:1", job.store_address()}, credentials_of(job), 0, Clock::now() + seconds(5))
          .ok());
  const auto none =
      StoreClient::connect({"127.0.0.1:1", "127.0.0.2:1"}, credentials_of(job), 0, Clock::now() + milliseconds(100));
  EXPECT_EQ(none.status().kind(), ErrorKind::kTimeout);
  EXPECT_TRUE(contains(none.status().message(), "127.0.0.1:1: "));
  EXPECT_TRUE(contains(none.status().message(), "127.0.0.2:1: "));
}

TEST(StoreClient, SaysSoWhenTheStoreGoesAway) {
  TestJob job(2);
  auto client = connect(job, 0);
  std::thread closer([&job] { job.store().close(); });
  const auto blobs = client.value().exchange("k", 2, {}, Clock::now() + seconds(10));
  closer.join();
  EXPECT_EQ(blobs.status().kind(), ErrorKind::kRanksLost);
  EXPECT_TRUE(contains(blobs.status().message(), "is the launcher still running?"));
}

}  // namespace
}  // namespace ciranda
