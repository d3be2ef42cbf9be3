#include "agree/cache_ids.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace ciranda {
namespace {

constexpr std::size_t kCapacity = 32;
constexpr int kMembers = 2;
const std::vector<std::uint32_t> kNone;

class CacheIdsTest : public ::testing::Test {
 protected:
  NameState& add(bool is_cacheable = true) {
    names_.push_back(std::make_unique<NameState>(std::to_string(names_.size()), is_cacheable, kMembers));
    return *names_.back();
  }

  // A name more than there are numbers: it gets none, and the two that were used longest ago are to be forgotten.
  std::vector<std::uint32_t> fill() {
    for (std::size_t i = 0; i < kCapacity; ++i) {
      EXPECT_EQ(ids_.assign(add(), true), nullptr);
      ids_.note_use(static_cast<std::uint32_t>(i));
    }
    EXPECT_EQ(ids_.assign(add(), true), nullptr);
    const auto told = ids_.forget_some(true);
    return told ? told->cache_ids : kNone;
  }

  void all_forget(const std::vector<std::uint32_t>& kept = {}) {
    for (int member = 0; member < kMembers; ++member) {
      ASSERT_TRUE(ids_.is_to_answer(member));
      ids_.forgotten(member, kept);
    }
  }

  std::vector<std::unique_ptr<NameState>> names_;
  CacheIds ids_{kCapacity, kMembers};
};

TEST_F(CacheIdsTest, AreNumberedInTheOrderInWhichTheyAreGivenOut) {
  EXPECT_EQ(ids_.assign(add(), true), nullptr);
  EXPECT_EQ(ids_.assign(add(false), true), nullptr);
  EXPECT_EQ(ids_.assign(add(), true), nullptr);
  EXPECT_EQ(names_[0]->cache_id, 0U);
  EXPECT_EQ(names_[1]->cache_id, kNoCacheId);
  EXPECT_EQ(names_[2]->cache_id, 1U);
  EXPECT_EQ(&ids_.name(1), names_[2].get());
  EXPECT_FALSE(ids_.has(2));
}

TEST_F(CacheIdsTest, NothingIsForgottenWhileThereAreEnough) {
  ids_.assign(add(), true);
  EXPECT_FALSE(ids_.forget_some(true));
  EXPECT_FALSE(ids_.is_to_answer(0));
}

TEST_F(CacheIdsTest, TheOldestAreTakenBackOnceAllHaveForgottenThem) {
  const auto told = fill();
  EXPECT_EQ(told, (std::vector<std::uint32_t>{0, 1}));
  NameState& late = *names_.back();
  ids_.forgotten(0, {});
  EXPECT_FALSE(ids_.is_to_answer(0));
  EXPECT_EQ(ids_.assign(late, true), nullptr) << "member 1 has not answered";
  ids_.forgotten(1, {});
  NameState* before = ids_.assign(late, true);
  ASSERT_NE(before, nullptr);
  EXPECT_EQ(before->cache_id, kNoCacheId);
  EXPECT_EQ(before, names_[late.cache_id].get());
  EXPECT_EQ(&ids_.name(late.cache_id), &late);
}

TEST_F(CacheIdsTest, WhatAMemberKeepsStays) {
  fill();
  all_forget({0, 1});
  EXPECT_EQ(ids_.assign(*names_.back(), true), nullptr);
  EXPECT_EQ(names_[0]->cache_id, 0U);
}

TEST_F(CacheIdsTest, WhatIsInUseWhenItsNumberIsWantedStays) {
  fill();
  all_forget();
  names_[0]->is_being_forgotten = false;  // it was carried out since
  names_[1]->negotiation.stage = Negotiation::Stage::kOpen;
  EXPECT_EQ(ids_.assign(*names_.back(), true), nullptr);
}

TEST_F(CacheIdsTest, WhatWasUsedLatelyIsNotForgotten) {
  for (std::size_t i = 0; i < kCapacity; ++i) ids_.assign(add(), true);
  for (std::uint32_t i = 0; i < kCapacity; ++i) ids_.note_use((i + 5) % kCapacity);
  ids_.assign(add(), true);
  const auto told = ids_.forget_some(true);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->cache_ids, (std::vector<std::uint32_t>{5, 6}));
}

TEST_F(CacheIdsTest, APlanThatIsInUseKeepsAll) {
  for (std::size_t i = 0; i <= kCapacity; ++i) ids_.assign(add(), true);
  EXPECT_FALSE(ids_.forget_some(false));
  EXPECT_EQ(ids_.assign(*names_.back(), false), nullptr);
}

}  // namespace
}  // namespace ciranda
