// CRC32C (Castagnoli): notices every change of up to 32 bits in a row, and of any others all but one in 2^32.
//
// By the processor's instruction where it has one, else by tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ciranda {

// Of bytes that come in parts: hand in what it was for those before.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

namespace detail {
// Whatever the processor has; for tests.
std::uint32_t crc32c_by_tables(std::span<const std::byte> bytes, std::uint32_t before);
}  // namespace detail

}  // namespace ciranda
