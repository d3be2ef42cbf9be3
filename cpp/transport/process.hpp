// A process of this machine, by a descriptor that is readable once it has ended.
//
// Called by SocketMesh and join_world(). Threads: any. Failure: an empty descriptor, with errno ESRCH if the process
// has ended; other errors mean that the system has no such descriptors, or gives none.
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.hpp"

namespace ciranda {

inline UniqueFd open_process(int pid) {
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

inline bool has_ended(int pid) {
  const UniqueFd process = open_process(pid);
  if (!process.valid()) return errno == ESRCH;
  pollfd source{process.get(), POLLIN, 0};
  return poll(&source, 1, 0) == 1;
}

}  // namespace ciranda
