// A random message of each type, from a seeded generator; and whether two messages are the same.
#pragma once

#include <cstddef>
#include <random>
#include <variant>

#include "agree/messages.hpp"

namespace ciranda::testing {

inline constexpr std::size_t kNumMessageTypes = std::variant_size_v<Message>;

// REQUIRES: type < kNumMessageTypes.
Message random_message(std::size_t type, std::mt19937_64& random);

// By their content; a NaN equals the same NaN.
bool are_equal(const Message& a, const Message& b);

}  // namespace ciranda::testing
