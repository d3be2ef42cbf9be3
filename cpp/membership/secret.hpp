// The job's secret: 256 random bits that every process of a job has and nobody else.
//
// It comes by a private file, never by a command line or the environment, and is never printed.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace ciranda {

using Secret = std::array<std::byte, 32>;

// 64 hexadecimal digits, white space around them allowed.
Result<Secret> parse_secret(std::string_view text);

// Reads it from a file, or from /dev/fd/N. A regular file that others than its owner may read is refused.
Result<Secret> read_secret(const std::string& path);

// Random bytes from the operating system.
Status fill_random(std::span<std::byte> bytes);

}  // namespace ciranda
