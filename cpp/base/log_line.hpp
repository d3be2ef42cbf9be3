// LogLine: a message of the log with its level, rank, host, step and time, and the forms in which lines are written.
// Called by Logger and open_log(); Config has the names of the forms; pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/log_level.hpp"

namespace ciranda {

enum class LogFormat : std::uint8_t {
  kText = 0,   // "2026-11-29T07:30:18.123456Z ciranda: info: [rank 3 hostB step 12] joined"
  kJson = 1,   // {"time":"2026-11-29T07:30:18.123456Z","level":"info","rank":3,...,"message":"joined"}
  kShort = 2,  // "ciranda: info: [rank 3] joined"
};

// The names of those that a setting can choose.
constexpr std::array<std::string_view, 2> kLogFormats{"text", "json"};

struct LogLine {
  LogLevel level;
  int rank;
  std::string_view host;
  std::uint64_t n_steps;  // of the training that have ended
  std::int64_t at_us;     // since the epoch
  std::string_view text;
};

// With its line end. As JSON it is one line, and valid, whatever the text contains.
std::string format_line(const LogLine& line, LogFormat format);

}  // namespace ciranda
