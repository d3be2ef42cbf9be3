// The job's secret: 256 random bits that only the processes of the job have.
//
// It is passed in a private file, never on a command line or in the environment, and is never printed.
// Called by connect() and bindings/python/store_server.cc; held by Handshake, StoreServer and join_world(); any thread.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/exported.hpp"
#include "base/status.hpp"

namespace ciranda {

using Secret = std::array<std::byte, 32>;

// 64 hexadecimal digits, white space around them allowed.
CIRANDA_EXPORTED Result<Secret> parse_secret(std::string_view text);

// Reads the secret from a file, or from /dev/fd/N. Refuses a regular file that users other than its owner may read.
Result<Secret> read_secret(const std::string& path);

}  // namespace ciranda
