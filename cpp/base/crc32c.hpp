// CRC32C (Castagnoli): detects every change of up to 32 consecutive bits, and all but one in 2^32 of other changes.
//
// Uses the processor's instruction if it has one, else tables. Called by Seal; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ciranda {

// For bytes in several parts, `before` is the result for the earlier parts.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

namespace detail {
// Always by tables; for tests.
std::uint32_t crc32c_by_tables(std::span<const std::byte> bytes, std::uint32_t before);
}  // namespace detail

}  // namespace ciranda
