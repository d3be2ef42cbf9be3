#include "transport/bell.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

namespace ciranda {

Result<Bell> Bell::create() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return Status::from_errno("cannot make a pipe");
  return Bell(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

Result<Bell> Bell::open(pid_t owner, int fd) {
  const std::string path = "/proc/" + std::to_string(owner) + "/fd/" + std::to_string(fd);
  // Open for reading too: writing to a pipe without a reader would raise SIGPIPE.
  UniqueFd pipe(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!pipe.valid()) return Status::from_errno("cannot open " + path);
  struct stat info {};
  if (fstat(pipe.get(), &info) != 0 || !S_ISFIFO(info.st_mode)) return Status::internal(path + " is not a pipe");
  return Bell(std::move(pipe), UniqueFd());
}

void Bell::ring() const {
  const std::byte byte{1};
  // Failures are ignored: either the pipe is full (the sleeper will wake), or its owner is gone.
  [[maybe_unused]] const ssize_t n = write(write_end_.valid() ? write_end_.get() : pipe_.get(), &byte, 1);
}

void Bell::drain() const {
  std::array<std::byte, 64> dropped;
  while (read(pipe_.get(), dropped.data(), dropped.size()) == static_cast<ssize_t>(dropped.size())) {
  }
}

}  // namespace ciranda
