#include "base/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>

namespace ciranda {
LogLevel log_level_from(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto found = std::find(kLogLevels.begin(), kLogLevels.end(), lower);
  return found == kLogLevels.end() ? LogLevel::kWarning : static_cast<LogLevel>(found - kLogLevels.begin());
}

void Logger::write(LogLevel level, const std::string& text) const {
  if (level < level_) return;
  const std::string line = "ciranda: " + std::string(kLogLevels[static_cast<std::size_t>(level)]) + ": [rank " +
                           std::to_string(rank_) + "] " + text + "\n";
  // One write, so that lines of several ranks do not mix. A failure cannot be reported anywhere.
  [[maybe_unused]] const auto n_written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace ciranda
