#include "base/log_listener.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <utility>

namespace ciranda {

void LogListener::open(UniqueFd socket) {
  const std::lock_guard lock(mutex_);
  socket_ = std::move(socket);
  owner_.store(getpid());
}

// A child after fork() has the socket as well: closing it here alone would not end what the reader gets.
void LogListener::close() {
  const std::lock_guard lock(mutex_);
  owner_.store(0);
  if (socket_.valid()) ::shutdown(socket_.get(), SHUT_WR);
  socket_.reset();
}

bool LogListener::is_open() const {
  const pid_t owner = owner_.load();
  return owner != 0 && owner == getpid();
}

// A child after fork() does not touch the lock, which another thread of its parent may have held.
bool LogListener::take(std::string_view line) {
  if (!is_open() || line.size() > kMostLineBytes) return false;
  const std::lock_guard lock(mutex_);
  return ::send(socket_.get(), line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

LogListener& log_listener() {
  static LogListener listener;
  return listener;
}

}  // namespace ciranda
