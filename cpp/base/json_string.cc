#include "base/json_string.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>

namespace ciranda {
namespace {

// The number of bytes of the UTF-8 character at the start of `text`; 0 if the bytes are not valid. Overlong encodings
// and surrogates are not valid.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t n_bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < n_bytes) return 0;
  for (std::size_t i = 1; i < n_bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
  }
  const unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  return byte(1) >= least && byte(1) <= most ? n_bytes : 0;
}

void append_control(char character, std::string& to) {
  std::array<char, 8> escaped{};
  std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(character));
  to += escaped.data();
}

}  // namespace

void append_json_string(std::string_view text, std::string& to) {
  to += '"';
  while (!text.empty()) {
    const std::size_t n_bytes = character_bytes(text);
    const char first = text.front();
    if (n_bytes == 0) {
      to += "\\ufffd";
    } else if (first == '"' || first == '\\') {
      to += '\\';
      to += first;
    } else if (n_bytes == 1 && first < ' ') {
      append_control(first, to);
    } else {
      to += text.substr(0, n_bytes);
    }
    text.remove_prefix(std::max<std::size_t>(n_bytes, 1));
  }
  to += '"';
}

}  // namespace ciranda
