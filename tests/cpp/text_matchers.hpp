// EXPECT_TRUE(contains(text, part)) shows both when it fails.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace ciranda {

inline ::testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "'" << part << "' is not in '" << text << "'";
}

}  // namespace ciranda
