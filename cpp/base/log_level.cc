#include "base/log_level.hpp"

#include <algorithm>
#include <cctype>
#include <string>

namespace ciranda {

LogLevel log_level_from(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto found = std::find(kLogLevels.begin(), kLogLevels.end(), lower);
  return found == kLogLevels.end() ? LogLevel::kWarning : static_cast<LogLevel>(found - kLogLevels.begin());
}

}  // namespace ciranda
