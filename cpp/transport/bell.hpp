// Bell: a pipe that wakes one sleeping thread, from this process or from another of the same user and host.
//
// Called by SocketMesh, Bells, SleepGate, StoreServer and join_world(), which makes it. Threads: ring() from any
// thread; drain() from the thread that sleeps on fd(). Failure: a full pipe counts as rung.
#pragma once

#include <sys/types.h>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace ciranda {

class Bell {
 public:
  static Result<Bell> create();
  // The bell of another process, only for ring(). `owner` and `fd`: the process id and the fd() that the owner reports.
  static Result<Bell> open(pid_t owner, int fd);

  int fd() const { return pipe_.get(); }
  void ring() const;
  void drain() const;

 private:
  Bell(UniqueFd pipe, UniqueFd write_end) : pipe_(std::move(pipe)), write_end_(std::move(write_end)) {}

  UniqueFd pipe_;       // the read end; another process's is open for writing too, so its pipe always has a reader
  UniqueFd write_end_;  // empty for another process's bell
};

}  // namespace ciranda
