#include "base/log.hpp"

#include <unistd.h>

#include <chrono>

#include "base/log_listener.hpp"

namespace ciranda {
namespace {

std::int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// One write, so that lines of several ranks do not mix.
bool put(int fd, const std::string& line) {
  return ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

}  // namespace

void Logger::write(LogLevel level, const std::string& text) const {
  past(level, now_us(), destination_->n_steps.load(std::memory_order_relaxed), text);
}

void Logger::write_later(LogLevel level, std::string text) const {
  if (!destination_->post) return write(level, text);
  destination_->post([self = *this, level, at_us = now_us(),
                      n_steps = destination_->n_steps.load(std::memory_order_relaxed),
                      text = std::move(text)] { self.past(level, at_us, n_steps, text); });
}

void Logger::past(LogLevel level, std::int64_t at_us, std::uint64_t n_steps, const std::string& text) const {
  if (is_on(level)) write({level, rank_, destination_->host, n_steps, at_us, text});
}

// A failure of standard error cannot be reported anywhere.
void Logger::write(const LogLine& line) const {
  const int file = destination_->file.get();
  bool is_kept = log_listener().is_open() && log_listener().take(format_line(line, LogFormat::kJson));
  if (file >= 0 && put(file, format_line(line, destination_->format))) is_kept = true;
  if (is_kept && line.level < LogLevel::kWarning) return;
  put(STDERR_FILENO, format_line(line, file >= 0 ? LogFormat::kShort : destination_->format));
}

}  // namespace ciranda
