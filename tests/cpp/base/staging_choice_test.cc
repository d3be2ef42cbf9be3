#include "base/staging_choice.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace ciranda {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kShort{100};
constexpr nanoseconds kLong{300};

int copies_until_trial(StagingChoice& choice) {
  int n = 0;
  while (!choice.is_trial_due()) ++n;
  return n;
}

void see_far(StagingChoice& choice) { choice.note_trial(kLong, kShort); }
void see_near(StagingChoice& choice) { choice.note_trial(kShort, kLong); }

TEST(StagingChoice, BeginsThroughTheCachesWithATrial) {
  StagingChoice choice;
  EXPECT_EQ(choice.current(), StagingCopy::kCached);
  EXPECT_EQ(copies_until_trial(choice), 0);
}

TEST(StagingChoice, CopiesBetweenTrialsAreNotTimed) {
  StagingChoice choice;
  for (int trial = 0; trial < 3; ++trial) {
    EXPECT_EQ(copies_until_trial(choice), trial == 0 ? 0 : static_cast<int>(StagingChoice::kCopiesBetweenTrials));
    see_near(choice);
  }
}

TEST(StagingChoice, ChangesAfterTwoTrialsInARow) {
  StagingChoice choice;
  see_far(choice);
  EXPECT_EQ(choice.current(), StagingCopy::kCached);
  EXPECT_EQ(copies_until_trial(choice), 0) << "the next copy decides";
  see_far(choice);
  EXPECT_EQ(choice.current(), StagingCopy::kPastCaches);
  EXPECT_EQ(copies_until_trial(choice), static_cast<int>(StagingChoice::kCopiesBetweenTrials));
  see_near(choice);
  see_near(choice);
  EXPECT_EQ(choice.current(), StagingCopy::kCached) << "the cores have moved";
}

TEST(StagingChoice, OneTrialThatWasInterruptedChangesNothing) {
  StagingChoice choice;
  for (int i = 0; i < 3; ++i) {
    see_far(choice);
    see_near(choice);
    EXPECT_EQ(choice.current(), StagingCopy::kCached);
  }
}

// Reading what was written past the caches takes longer.
TEST(StagingChoice, PastTheCachesHasToGainMoreThanReadingLoses) {
  StagingChoice choice;
  for (int i = 0; i < 3; ++i) choice.note_trial(nanoseconds{199}, nanoseconds{100});
  EXPECT_EQ(choice.current(), StagingCopy::kCached);
}

TEST(StagingChoice, APrescribedTechniqueStays) {
  for (const StagingCopy technique : {StagingCopy::kCached, StagingCopy::kPastCaches}) {
    StagingChoice choice;
    choice.prescribe(technique);
    for (std::uint32_t i = 0; i <= 2 * StagingChoice::kCopiesBetweenTrials; ++i) EXPECT_FALSE(choice.is_trial_due());
    EXPECT_EQ(choice.current(), technique);
    EXPECT_EQ(staging_copy_named(to_string(technique)), technique);
    choice.prescribe(std::nullopt);
    EXPECT_EQ(choice.current(), StagingCopy::kCached);
    EXPECT_EQ(copies_until_trial(choice), 0);
  }
  EXPECT_EQ(staging_copy_named(""), std::nullopt);
}

}  // namespace
}  // namespace ciranda
