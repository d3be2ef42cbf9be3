// LastError: the error of the call that failed last.
//
// Threads: any.
//
// Called by plugin.cc and Running.
#pragma once

#include <ciranda/table.h>

#include <mutex>
#include <string>
#include <utility>

namespace ciranda::mxnet {

class LastError {
 public:
  void note(ciranda_status status, std::string message) {
    const std::lock_guard guard(lock_);
    status_ = status;
    message_ = std::move(message);
  }

  // Returns its status and message; CIRANDA_OK if no call has failed.
  std::pair<ciranda_status, std::string> get() const {
    const std::lock_guard guard(lock_);
    return {status_, message_};
  }

 private:
  mutable std::mutex lock_;
  ciranda_status status_ = CIRANDA_OK;
  std::string message_;
};

// This process's instance. It is never freed, since calls may end while the process ends.
inline LastError& last_error() {
  static LastError* const last = new LastError;
  return *last;
}

}  // namespace ciranda::mxnet
