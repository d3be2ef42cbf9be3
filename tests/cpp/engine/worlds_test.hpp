// WorldsTest: what the tests have in common that are run in worlds of several sizes and layouts.
#pragma once

#include <gtest/gtest.h>

#include <tuple>

#include "engine/world.hpp"

namespace ciranda::testing {

// How many ranks there are, and what they share.
class WorldsTest : public ::testing::TestWithParam<std::tuple<int, Layout>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  Layout layout() const { return std::get<1>(GetParam()); }
  WorldOptions options() const { return options_for(layout(), size()); }
};

}  // namespace ciranda::testing
