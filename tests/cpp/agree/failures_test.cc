// Who is told of a failed negotiation at once, who is told with a later call, and who is let off.
#include "agree/failures.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "agree/targets.hpp"

namespace ciranda::testing {
namespace {

using Targets = std::vector<std::int32_t>;

class FailuresTest : public ::testing::Test {
 protected:
  void fail(const Targets& arrived, const std::optional<DuplicateCall>& duplicate = std::nullopt) {
    name_.negotiation.stage = Negotiation::Stage::kOpen;
    for (const std::int32_t member : arrived) name_.negotiation.arrive(member, Arrival::kUnchanged);
    failures_.fail(name_, members_, ErrorKind::kMismatch, "wrong", duplicate);
    name_.negotiation.close();
  }
  // Whom the next entries tell.
  Targets told() {
    Targets all;
    for (const FailEntry& entry : failures_.take()) {
      const auto targets = targets_of(entry);
      all.insert(all.end(), targets.begin(), targets.end());
    }
    return all;
  }

  Members members_{3, {}, {}};
  NameState name_{"x", true, 3};
  Failures failures_;
};

TEST_F(FailuresTest, TellThoseWhoCameAndThenTheOthersOnce) {
  fail({1});
  EXPECT_EQ(told(), Targets{1});
  EXPECT_FALSE(failures_.answer(name_, 1)) << "it owes nothing";
  EXPECT_TRUE(failures_.answer(name_, 0));
  EXPECT_FALSE(failures_.answer(name_, 0)) << "it has paid";
  EXPECT_TRUE(failures_.answer(name_, 2));
  EXPECT_EQ(told(), (Targets{0, 2}));
  EXPECT_TRUE(name_.deferred_errors.empty());
}

TEST_F(FailuresTest, LetOffWhoHasJoined) {
  members_.join(0);
  fail({1});
  EXPECT_FALSE(failures_.answer(name_, 0));
  EXPECT_TRUE(failures_.drop(name_, 2)) << "it joins now, and no error is deferred then";
  EXPECT_TRUE(name_.deferred_errors.empty());
}

TEST_F(FailuresTest, TellWhoDidSoTwiceTwice) {
  fail({1}, DuplicateCall{1, true});
  EXPECT_EQ(told(), (Targets{1, 1}));
  EXPECT_TRUE(failures_.answer(name_, 0));
  EXPECT_TRUE(failures_.answer(name_, 0));
  EXPECT_FALSE(failures_.answer(name_, 0));
}

TEST_F(FailuresTest, OfADuplicateAreForgottenInALaterRound) {
  fail({1}, DuplicateCall{1, true});
  EXPECT_TRUE(failures_.expire_duplicates(0).empty()) << "that negotiation was open already";
  EXPECT_EQ(failures_.expire_duplicates(failures_.n_failed()), std::vector<NameState*>{&name_});
  EXPECT_FALSE(failures_.answer(name_, 0));
  EXPECT_TRUE(failures_.expire_duplicates(failures_.n_failed()).empty()) << "nothing is left";
}

TEST_F(FailuresTest, OfOtherCallsAreOwedForLonger) {
  fail({1});
  fail({1}, DuplicateCall{1, false});
  failures_.expire_duplicates(failures_.n_failed());
  EXPECT_TRUE(failures_.answer(name_, 0));
  EXPECT_FALSE(failures_.answer(name_, 0));
}

TEST_F(FailuresTest, OfADuplicateThatAllHavePaidConcernNobody) {
  fail({1}, DuplicateCall{1, false});
  EXPECT_TRUE(failures_.answer(name_, 0));
  EXPECT_TRUE(failures_.answer(name_, 2));
  EXPECT_TRUE(failures_.expire_duplicates(failures_.n_failed()).empty()) << "the name may be gone";
}

}  // namespace
}  // namespace ciranda::testing
