#include "base/log_line.hpp"

#include <cstdio>
#include <ctime>

#include "base/json_string.hpp"

namespace ciranda {
namespace {

constexpr std::int64_t kPerSecond = 1'000'000;

// In UTC, as in RFC 3339.
std::string time_text(std::int64_t at_us) {
  const std::time_t seconds = at_us / kPerSecond;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  const std::size_t n_bytes = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text.data() + n_bytes, text.size() - n_bytes, ".%06dZ", static_cast<int>(at_us % kPerSecond));
  return text.data();
}

// The launcher finds warnings by these beginnings (launch/waits.py).
std::string short_head(const LogLine& line) {
  return "ciranda: " + std::string(to_string(line.level)) + ": [rank " + std::to_string(line.rank);
}

std::string json_of(const LogLine& line) {
  std::string text = R"({"time":")" + time_text(line.at_us) + R"(","level":")" + std::string(to_string(line.level)) +
                     R"(","rank":)" + std::to_string(line.rank) + R"(,"host":)";
  append_json_string(line.host, text);
  text += R"(,"step":)" + std::to_string(line.n_steps) + R"(,"message":)";
  append_json_string(line.text, text);
  return text + "}\n";
}

}  // namespace

std::string format_line(const LogLine& line, LogFormat format) {
  switch (format) {
    case LogFormat::kText:
      return time_text(line.at_us) + " " + short_head(line) + " " + std::string(line.host) + " step " +
             std::to_string(line.n_steps) + "] " + std::string(line.text) + "\n";
    case LogFormat::kJson: return json_of(line);
    case LogFormat::kShort: break;
  }
  return short_head(line) + "] " + std::string(line.text) + "\n";
}

}  // namespace ciranda
