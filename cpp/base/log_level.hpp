// LogLevel: how severe a message is, and the levels' names.
// Called by Config, Logger and log_line.hpp; pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ciranda {

enum class LogLevel : std::uint8_t { kTrace = 0, kDebug = 1, kInfo = 2, kWarning = 3, kError = 4, kFatal = 5 };

constexpr std::array<std::string_view, 6> kLogLevels{"trace", "debug", "info", "warning", "error", "fatal"};

constexpr std::string_view to_string(LogLevel level) { return kLogLevels[static_cast<std::size_t>(level)]; }

// Horovod's names, any case; kWarning for a name it does not know.
LogLevel log_level_from(std::string_view name);

}  // namespace ciranda
