#include "base/fill_random.hpp"

#include <sys/random.h>

#include <cerrno>

namespace ciranda {

Status fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = getrandom(bytes.data(), bytes.size(), 0);
    if (n < 0 && errno != EINTR) return Status::from_errno("cannot get random bytes");
    bytes = bytes.subspan(n > 0 ? static_cast<std::size_t>(n) : 0);
  }
  return {};
}

}  // namespace ciranda
