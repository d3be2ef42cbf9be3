// Silence: the time for which a connection's peer has acknowledged nothing that it was sent.
//
// The kernel closes such a connection only after a quarter of an hour. With TCP_USER_TIMEOUT it would do so earlier,
// but also if the peer acknowledges everything and merely has no room for more, as with a process in a debugger. Such a
// peer must not be lost.
// A plain value, for one connection; call lasts() from time to time.
#pragma once

#include <chrono>
#include <optional>

struct tcp_info;

namespace ciranda {

class Silence {
 public:
  using Clock = std::chrono::steady_clock;

  // The kernel's state of a connection.
  struct Sight {
    bool was_sent_in_vain = false;  // data was retransmitted, or a probe was sent, without an answer so far
    std::chrono::milliseconds last_answer_ago{};
  };
  static Sight sight_of(int fd);
  static Sight sight_in(const tcp_info& info);

  // The duration of the silence at `now`, counted at most from the first call that saw it.
  Clock::duration lasts(const Sight& sight, Clock::time_point now);

 private:
  std::optional<Clock::time_point> since_;
};

}  // namespace ciranda
