#include "base/port_range.hpp"

#include <charconv>
#include <system_error>

namespace ciranda {

std::string PortRange::to_string() const { return std::to_string(low) + "-" + std::to_string(high); }

Result<PortRange> parse_port_range(const std::string& text) {
  if (text.empty()) return PortRange{};
  const char* end = text.data() + text.size();
  PortRange range;
  auto [at, error] = std::from_chars(text.data(), end, range.low);
  range.high = range.low;
  if (error == std::errc() && at != end && *at == '-') {
    const auto second = std::from_chars(at + 1, end, range.high);
    at = second.ptr;
    error = second.ec;
  }
  if (error != std::errc() || at != end || range.low == 0 || range.high < range.low) {
    return Status::invalid_argument("'" + text + "' is not a range of ports such as 4000-4100");
  }
  return range;
}

}  // namespace ciranda
