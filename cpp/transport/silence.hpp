// Silence: for how long a connection's peer has acknowledged nothing of what it was sent.
//
// The system itself gives such a connection up after a quarter of an hour. It can be told to do so earlier
// (TCP_USER_TIMEOUT), but then also does when the peer acknowledges everything and only has no room for more, as that
// of a process in a debugger; which is no reason to lose it.
// A plain value, for one connection; look at it from time to time.
#pragma once

#include <chrono>
#include <optional>

struct tcp_info;

namespace ciranda {

class Silence {
 public:
  using Clock = std::chrono::steady_clock;

  // What the system knows of a connection.
  struct Sight {
    bool was_sent_in_vain = false;  // data, and sent again; or a probe
    std::chrono::milliseconds last_answer_ago{};
  };
  static Sight sight_of(int fd);
  static Sight sight_in(const tcp_info& info);

  // How long it has lasted at `now`, as far as it was seen.
  Clock::duration lasts(const Sight& sight, Clock::time_point now);

 private:
  std::optional<Clock::time_point> since_;
};

}  // namespace ciranda
