// parse_number: parses a text that is a number and nothing else. A pure function.
// Called by Config, CostsFile, other_launchers.hpp and SocketAddress.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace ciranda {

// None if the text is no number, has more after the number, or is out of T's range.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || last != end) return std::nullopt;
  return number;
}

}  // namespace ciranda
