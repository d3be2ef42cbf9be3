#include "membership/handshake.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "crypto/hexadecimal.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

Credentials shared_credentials() {
  Credentials result;
  result.secret.fill(std::byte{7});
  result.job = "job";
  result.epoch = 3;
  return result;
}

constexpr Purpose kAsked{Role::kControl, 2, 1, 4, 5};
constexpr AcceptingHandshake::Expectation kExpectation{false, 1, 4};

Nonce nonce_of(int value) {
  Nonce nonce;
  nonce.fill(static_cast<std::byte>(value));
  return nonce;
}

// Changes bytes on the way; `from_connecting` and how many messages came before say which.
using Tamper = std::function<void(bool from_connecting, int message, std::vector<std::byte>& bytes)>;

// Carries messages between both, byte by byte, until nobody has more to say.
void converse(Handshake& connecting, Handshake& accepting, const Tamper& tamper = {}) {
  for (int message = 0; message < 4; ++message) {
    for (const bool from_connecting : {true, false}) {
      Handshake& from = from_connecting ? connecting : accepting;
      Handshake& to = from_connecting ? accepting : connecting;
      auto bytes = from.take_output();
      if (tamper && !bytes.empty()) {
        tamper(from_connecting, message, bytes);
      }
      for (const std::byte& byte : bytes) {
        if (to.wants() > 0) {
          to.receive({&byte, 1});
        }
      }
    }
  }
}

struct Outcome {
  Verdict connecting;
  Verdict accepting;
  std::string connecting_reason;
  std::string accepting_reason;
};

Outcome outcome_of(const Credentials& ours, const Purpose& purpose, const Credentials& theirs,
                   const AcceptingHandshake::Expectation& expectation, const Tamper& tamper = {}) {
  ConnectingHandshake connecting(ours, purpose, nonce_of(1));
  AcceptingHandshake accepting(theirs, expectation, nonce_of(2));
  converse(connecting, accepting, tamper);
  return {connecting.verdict(), accepting.verdict(), connecting.reason(), accepting.reason()};
}

TEST(Handshake, SucceedsBetweenTwoOfOneJob) {
  ConnectingHandshake connecting(shared_credentials(), kAsked, nonce_of(1));
  AcceptingHandshake accepting(shared_credentials(), kExpectation, nonce_of(2));
  converse(connecting, accepting);
  EXPECT_EQ(connecting.verdict(), Verdict::kAccepted);
  EXPECT_EQ(accepting.verdict(), Verdict::kAccepted);
  EXPECT_EQ(accepting.purpose().role, Role::kControl);
  EXPECT_EQ(accepting.purpose().from, 2U);
  EXPECT_EQ(accepting.purpose().index, 5U);
  EXPECT_EQ(connecting.wants() + accepting.wants(), 0U) << "must not read what follows";
}

TEST(Handshake, DifferentSecretsAreNamedOnBothSides) {
  Credentials other = shared_credentials();
  other.secret[31] ^= std::byte{1};
  const Outcome outcome = outcome_of(shared_credentials(), kAsked, other, kExpectation);
  EXPECT_EQ(outcome.connecting, Verdict::kRefused);
  EXPECT_EQ(outcome.accepting, Verdict::kRefused);
  EXPECT_TRUE(contains(outcome.connecting_reason, "presented a different job secret"));
  EXPECT_TRUE(contains(outcome.accepting_reason, "presented a different job secret"));
}

TEST(Handshake, OtherDisagreementsAreNamedOnBothSides) {
  Credentials job = shared_credentials();
  job.job = "other";
  Credentials epoch = shared_credentials();
  epoch.epoch = 4;
  const auto expect = [](const Outcome& outcome, const std::string& reason) {
    EXPECT_EQ(outcome.connecting, Verdict::kRefused);
    EXPECT_EQ(outcome.accepting, Verdict::kRefused);
    EXPECT_TRUE(contains(outcome.connecting_reason, reason));
    EXPECT_TRUE(contains(outcome.accepting_reason, reason));
  };
  expect(outcome_of(shared_credentials(), kAsked, job, kExpectation), "another job");
  expect(outcome_of(shared_credentials(), kAsked, epoch, kExpectation), "another epoch");
  expect(outcome_of(shared_credentials(), kAsked, shared_credentials(), {false, 0, 4}), "another rank or service");
  expect(outcome_of(shared_credentials(), kAsked, shared_credentials(), {true, 0, 0}), "another rank or service");
  expect(outcome_of(shared_credentials(), {Role::kStore, 2, 0, 0}, shared_credentials(), kExpectation),
         "another rank or service");
  expect(outcome_of(shared_credentials(), kAsked, shared_credentials(), {false, 1, 5}), "another number of ranks");
  expect(outcome_of(shared_credentials(), {Role::kData, 4, 1, 4}, shared_credentials(), kExpectation),
         "another number of ranks");
}

// Also one that has the secret, and signs what it says.
TEST(Handshake, AnotherVersionIsNamedOnBothSides) {
  constexpr std::size_t kVersionAt = Handshake::kMagicBytes;
  for (const int change : {1, 2, 0x80}) {
    const Outcome outcome = outcome_of(shared_credentials(), kAsked, shared_credentials(), kExpectation,
                                       [&](bool from_connecting, int message, std::vector<std::byte>& bytes) {
                                         if (from_connecting && message == 0) {
                                           bytes[kVersionAt] ^= static_cast<std::byte>(change);
                                         }
                                       });
    EXPECT_EQ(outcome.connecting, Verdict::kRefused);
    EXPECT_EQ(outcome.accepting, Verdict::kRefused);
    EXPECT_TRUE(contains(outcome.connecting_reason, "speaks another version of the protocol"));
    EXPECT_TRUE(contains(outcome.accepting_reason, "speaks another version of the protocol"));
  }
}

// Whatever byte is changed on the way, the one who receives it does not accept.
TEST(Handshake, EveryChangedByteIsNoticed) {
  for (const bool from_connecting : {true, false}) {
    for (const int message : {0, 1}) {
      const std::size_t n_bytes = message == 0 ? Handshake::kHelloBytes : from_connecting ? Handshake::kProofBytes : 1;
      for (std::size_t at = 0; at < n_bytes; ++at) {
        const Outcome outcome = outcome_of(shared_credentials(), kAsked, shared_credentials(), kExpectation,
                                           [&](bool from, int number, std::vector<std::byte>& bytes) {
                                             if (from == from_connecting && number == message) {
                                               ASSERT_LT(at, bytes.size());
                                               bytes[at] ^= std::byte{0x40};
                                             }
                                           });
        EXPECT_NE(from_connecting ? outcome.accepting : outcome.connecting, Verdict::kAccepted)
            << "byte " << at << " of message " << message << " to the "
            << (from_connecting ? "accepting" : "connecting");
      }
    }
  }
}

TEST(Handshake, WhoHasNoRoomIsNamedAndMayBeTriedAgain) {
  ConnectingHandshake handshake(shared_credentials(), kAsked, nonce_of(1));
  handshake.receive(AcceptingHandshake::has_no_room());
  EXPECT_EQ(handshake.verdict(), Verdict::kRefused);
  EXPECT_FALSE(handshake.lasts());
  EXPECT_TRUE(contains(handshake.reason(), "may open no more files: raise the limit of that process (ulimit -n)"));
}

TEST(Handshake, ARecordedConversationProvesNothingLater) {
  ConnectingHandshake connecting(shared_credentials(), kAsked, nonce_of(1));
  AcceptingHandshake first(shared_credentials(), kExpectation, nonce_of(2));
  std::vector<std::byte> recorded;
  converse(connecting, first, [&](bool from_connecting, int, std::vector<std::byte>& bytes) {
    if (from_connecting) {
      recorded.insert(recorded.end(), bytes.begin(), bytes.end());
    }
  });
  ASSERT_EQ(first.verdict(), Verdict::kAccepted);
  AcceptingHandshake second(shared_credentials(), kExpectation, nonce_of(3));
  for (const std::byte& byte : recorded) {
    if (second.wants() > 0) {
      second.receive({&byte, 1});
    }
  }
  EXPECT_EQ(second.verdict(), Verdict::kRefused);
}

// Sends a rank's own proof back to it: it must not count as the other side's.
TEST(Handshake, AReflectedProofIsRefused) {
  ConnectingHandshake connecting(shared_credentials(), kAsked, nonce_of(1));
  ConnectingHandshake oracle(shared_credentials(), kAsked, nonce_of(1));
  AcceptingHandshake accepting(shared_credentials(), kExpectation, nonce_of(2));
  accepting.receive(connecting.take_output());
  const auto challenge = accepting.take_output();
  oracle.take_output();
  oracle.receive(challenge);
  const auto proof = oracle.take_output();
  auto forged = challenge;
  std::copy(proof.begin(), proof.end(), forged.end() - static_cast<std::ptrdiff_t>(proof.size()));
  connecting.receive(forged);
  EXPECT_EQ(connecting.verdict(), Verdict::kRefused);
}

// The keys that the connecting side has, and those that the accepting side has.
std::pair<ConnectionKeys, ConnectionKeys> keys_of(const Credentials& credentials, const Purpose& purpose, int ours,
                                                  int theirs) {
  ConnectingHandshake connecting(credentials, purpose, nonce_of(ours));
  AcceptingHandshake accepting(credentials, {false, purpose.to, purpose.size}, nonce_of(theirs));
  converse(connecting, accepting);
  EXPECT_EQ(accepting.verdict(), Verdict::kAccepted);
  return {connecting.keys(), accepting.keys()};
}

// As derived apart from this code, by Python's hmac from RFC 5869's definition.
TEST(Handshake, BothSidesDeriveTheSameKeys) {
  const auto [connecting, accepting] = keys_of(shared_credentials(), kAsked, 1, 2);
  EXPECT_EQ(connecting.outgoing, accepting.incoming);
  EXPECT_EQ(connecting.incoming, accepting.outgoing);
  EXPECT_EQ(hex(connecting.outgoing), "63368fb2712ee0f0e8c4695b98b50ea63f382e8efb489858de525f6212076a6f");
  EXPECT_EQ(hex(connecting.incoming), "7a84dbde27013c06b643c80458d8fd8a34cf98259254ac759f2bb20da57bbf6e");
}

TEST(Handshake, NoTwoConnectionsOrDirectionsShareAKey) {
  std::set<Aead::Key> keys;
  const auto add = [&keys](const Credentials& credentials, const Purpose& purpose, int ours, int theirs) {
    const ConnectionKeys made = keys_of(credentials, purpose, ours, theirs).first;
    EXPECT_TRUE(keys.insert(made.outgoing).second);
    EXPECT_TRUE(keys.insert(made.incoming).second);
  };
  const Credentials shared = shared_credentials();
  add(shared, kAsked, 1, 2);
  add(shared, kAsked, 3, 2);
  add(shared, kAsked, 1, 3);
  add(shared, {Role::kData, 2, 1, 4, 5}, 1, 2);
  add(shared, {Role::kControl, 3, 1, 4, 5}, 1, 2);
  add(shared, {Role::kControl, 2, 0, 4, 5}, 1, 2);
  add(shared, {Role::kControl, 2, 1, 5, 5}, 1, 2);
  add(shared, {Role::kControl, 2, 1, 4, 6}, 1, 2);
  for (const auto change : std::initializer_list<void (*)(Credentials&)>{
           [](Credentials& each) { each.secret[0] ^= std::byte{1}; }, [](Credentials& each) { each.job = "other"; },
           [](Credentials& each) { ++each.epoch; }}) {
    Credentials other = shared;
    change(other);
    add(other, kAsked, 1, 2);
  }
}

TEST(Handshake, StrangersAreRefusedAtTheirFirstWrongByte) {
  for (const std::string_view text : {"GET / HTTP/1.1\r\n", "\x16\x03\x01", "CIRANDO", "\n"}) {
    AcceptingHandshake accepting(shared_credentials(), kExpectation, nonce_of(2));
    accepting.receive(std::as_bytes(std::span(text)));
    EXPECT_EQ(accepting.verdict(), Verdict::kRefused) << text;
    EXPECT_TRUE(contains(accepting.reason(), "does not speak Ciranda's protocol"));
    EXPECT_TRUE(accepting.take_output().empty()) << "nothing is told to strangers";
    EXPECT_EQ(accepting.wants(), 0U);
  }
}

TEST(Handshake, NeverWantsMoreThanItsBound) {
  ConnectingHandshake connecting(shared_credentials(), kAsked, nonce_of(1));
  AcceptingHandshake accepting(shared_credentials(), kExpectation, nonce_of(2));
  std::size_t n_connecting = 0;
  std::size_t n_accepting = 0;
  converse(connecting, accepting, [&](bool from_connecting, int, const std::vector<std::byte>& bytes) {
    (from_connecting ? n_connecting : n_accepting) += bytes.size();
  });
  EXPECT_LE(n_connecting, Handshake::kMostBytes);
  EXPECT_LE(n_accepting, Handshake::kMostBytes);
}

}  // namespace
}  // namespace ciranda
