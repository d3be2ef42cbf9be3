// LogListener: a reader in this process, such as Python's logging, that gets the lines of all its loggers, as JSON.
//
// Called by Logger, any thread; set and closed by log_watch.cc. A child after fork() has none.
// Failure: a line that the listener cannot take now is not taken; nothing waits for it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string_view>

#include "base/exported.hpp"
#include "base/unique_fd.hpp"

namespace ciranda {

class LogListener {
 public:
  static constexpr std::size_t kMostLineBytes = std::size_t{64} << 10U;

  // `socket` keeps the bounds of messages (SOCK_SEQPACKET). The reader finds its end after close().
  CIRANDA_EXPORTED void open(UniqueFd socket);
  CIRANDA_EXPORTED void close();

  // Whether the line was taken.
  bool take(std::string_view line);
  CIRANDA_EXPORTED bool is_open() const;

 private:
  std::atomic<pid_t> owner_{0};  // the process that has a listener
  std::mutex mutex_;
  UniqueFd socket_;
};

// The listener of this process.
CIRANDA_EXPORTED LogListener& log_listener();

}  // namespace ciranda
