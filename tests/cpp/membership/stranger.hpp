// Stranger: a plain TCP connection to a port of the job, that says what it likes.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <string_view>

#include "membership/blocking_io.hpp"
#include "transport/socket.hpp"

namespace ciranda {

class Stranger {
 public:
  // From that address, if it is not empty.
  explicit Stranger(const std::string& address, const SocketAddress& from = {}) {
    const SocketAddress to = SocketAddress::parse(address).value();
    auto fd = start_connecting(to, from);
    EXPECT_TRUE(fd.ok()) << fd.status().message();
    fd_ = std::move(fd).value();
    pollfd source{fd_.get(), POLLOUT, 0};
    EXPECT_EQ(poll(&source, 1, 5000), 1);
    EXPECT_TRUE(finish_connecting(fd_.get(), to).ok());
  }

  int fd() const { return fd_.get(); }

  void say(std::span<const std::byte> bytes) {
    (void)send_all(fd_.get(), bytes, std::chrono::steady_clock::now() + std::chrono::seconds(5));
  }
  void say(std::string_view text) { say(std::as_bytes(std::span(text))); }

  // How many bytes come until the other side closes; -1 if it does not within the time.
  long bytes_until_closed(std::chrono::milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    long n_bytes = 0;
    std::array<std::byte, 1000> bytes;
    while (wait_until_ready(fd_.get(), POLLIN, deadline).ok()) {
      const ssize_t n = recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno == ECONNRESET)) {
        return n_bytes;
      }
      n_bytes += n > 0 ? n : 0;
    }
    return -1;
  }

 private:
  UniqueFd fd_;
};

}  // namespace ciranda
