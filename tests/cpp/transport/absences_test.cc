#include "transport/absences.hpp"

#include <gtest/gtest.h>

#include <array>

namespace ciranda {
namespace {

TEST(Absences, AreInTheOrderInWhichTheyWereNotedFirst) {
  alignas(8) std::array<std::byte, Absences::required_bytes(3)> memory{};
  const Absences here(memory);
  const Absences elsewhere(memory);
  EXPECT_EQ(here.number(), 0U);
  here.note(2);
  elsewhere.note(0);
  here.note(2);  // of a member that has left, its watchers then see the process end
  EXPECT_EQ(elsewhere.number(), 2U);
  EXPECT_EQ(elsewhere.place_of(1), 0U);
  EXPECT_GT(elsewhere.place_of(2), 0U);
  EXPECT_GT(here.place_of(0), here.place_of(2));
}

}  // namespace
}  // namespace ciranda
