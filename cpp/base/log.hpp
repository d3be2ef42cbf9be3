// Logger: writes each message as one line, with this rank's number, to the listener of the process or a file if it has
// one, else to standard error. Warnings and errors always go to standard error, too. Copyable: copies share the file
// and the count of steps. Any thread.
//
// A message below the level costs a comparison: its text is not made. Writing a message blocks while the file or the
// pipe is full. So a thread on which others depend, such as the holder of the progress lock, calls later().
//
// Called by base/, engine/, execute/ and observe/; capi/worlds.cc, through open_log.hpp.
// Failure: a line that a file does not take goes to standard error.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/log_level.hpp"
#include "base/log_line.hpp"
#include "base/unique_fd.hpp"

namespace ciranda {

class Logger {
 public:
  // What the copies share.
  struct Destination {
    LogFormat format = LogFormat::kShort;
    std::string host;
    UniqueFd file;  // opened with O_APPEND; none: standard error
    std::atomic<std::uint64_t> n_steps{0};
    std::function<void(std::function<void()>)> post;  // calls what it is given on another thread
  };

  // Short lines on standard error.
  Logger(int rank, LogLevel level) : Logger(rank, level, std::make_shared<Destination>()) {}
  Logger(int rank, LogLevel level, std::shared_ptr<Destination> destination)
      : rank_(rank), level_(level), destination_(std::move(destination)) {}

  bool is_on(LogLevel level) const { return level >= level_; }

  void warning(const std::string& text) const { write(LogLevel::kWarning, text); }
  void error(const std::string& text) const { write(LogLevel::kError, text); }
  // `make` returns the text; it is called only if that is written.
  template <typename Make>
  void info(const Make& make) const {
    if (is_on(LogLevel::kInfo)) write(LogLevel::kInfo, make());
  }
  template <typename Make>
  void debug(const Make& make) const {
    if (is_on(LogLevel::kDebug)) write(LogLevel::kDebug, make());
  }
  // The same, but another thread writes the line, with the time and the step of now.
  template <typename Make>
  void later(LogLevel level, const Make& make) const {
    if (is_on(level)) write_later(level, make());
  }
  // Writes a message about an earlier time, in microseconds since the epoch, by which so many steps had ended.
  void past(LogLevel level, std::int64_t at_us, std::uint64_t n_steps, const std::string& text) const;

  // `post` runs what it is given on another thread, until it is replaced. Without one, later() writes the line itself.
  // REQUIRES: no other thread uses this logger or a copy of it.
  void set_post(std::function<void(std::function<void()>)> post) const { destination_->post = std::move(post); }

  // A step of the training has ended.
  void count_step() const { destination_->n_steps.fetch_add(1, std::memory_order_relaxed); }

 private:
  void write(LogLevel level, const std::string& text) const;
  void write_later(LogLevel level, std::string text) const;
  void write(const LogLine& line) const;

  int rank_;
  LogLevel level_;
  std::shared_ptr<Destination> destination_;
};

}  // namespace ciranda
