// Logger: writes each message as one line to standard error, with this rank's number. Copyable; any thread.
// Called by base/, capi/, engine/, execute/ and observe/.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ciranda {

enum class LogLevel : std::uint8_t { kTrace = 0, kDebug = 1, kInfo = 2, kWarning = 3, kError = 4, kFatal = 5 };

constexpr std::array<std::string_view, 6> kLogLevels{"trace", "debug", "info", "warning", "error", "fatal"};

// Horovod's names, any case; kWarning for a name it does not know.
LogLevel log_level_from(std::string_view name);

class Logger {
 public:
  Logger(int rank, LogLevel level) : rank_(rank), level_(level) {}

  void warning(const std::string& text) const { write(LogLevel::kWarning, text); }
  void error(const std::string& text) const { write(LogLevel::kError, text); }

 private:
  void write(LogLevel level, const std::string& text) const;

  int rank_;
  LogLevel level_;
};

}  // namespace ciranda
