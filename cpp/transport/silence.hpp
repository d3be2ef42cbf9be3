// Silence: measures how long a connection's peer has acknowledged none of the data sent to it.
//
// The kernel closes a silent connection only after a quarter of an hour. With TCP_USER_TIMEOUT it would close it
// earlier, but also if the peer acknowledges everything and merely has no room for more, such as a process in a
// debugger. A peer without room must not count as lost.
// Called by SocketMesh. A plain value, for one connection; call lasts() from time to time.
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
