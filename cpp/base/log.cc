#include "base/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace ciranda {
namespace {

constexpr std::array<std::string_view, 6> kNames{"trace", "debug", "info", "warning", "error", "fatal"};

}  // namespace

LogLevel log_level_from(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto found = std::find(kNames.begin(), kNames.end(), lower);
  return found == kNames.end() ? LogLevel::kWarning : static_cast<LogLevel>(found - kNames.begin());
}

void Logger::write(LogLevel level, const std::string& text) const {
  if (level < level_) return;
  const std::string line = "ciranda: " + std::string(kNames[static_cast<std::size_t>(level)]) + ": [rank " +
                           std::to_string(rank_) + "] " + text + "\n";
  // One write, so that lines of several ranks do not mix. Nobody could be told if it failed.
  [[maybe_unused]] const auto n_written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace ciranda
