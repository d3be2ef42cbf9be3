// Bell: a pipe by which others, in this process or in another of the same user and host, end one thread's sleep.
//
// Threads: ring() from any thread; drain() from the one that sleeps on fd(). Failure: a full pipe counts as rung.
#pragma once

#include <sys/types.h>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace ciranda {

class Bell {
 public:
  static Result<Bell> create();
  // Someone else's bell, by what its owner says of itself: its process and fd(). Only to ring.
  static Result<Bell> open(pid_t owner, int fd);

  int fd() const { return pipe_.get(); }
  void ring() const;
  void drain() const;

 private:
  Bell(UniqueFd pipe, UniqueFd write_end) : pipe_(std::move(pipe)), write_end_(std::move(write_end)) {}

  UniqueFd pipe_;       // the read end, open for both where it is another's: a bell never loses its reader
  UniqueFd write_end_;  // empty for another's bell
};

}  // namespace ciranda
