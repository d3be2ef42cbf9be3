// Silence: decides when a connection's peer has acknowledged none of the data sent to it for too long.
//
// The kernel closes a silent connection only after a quarter of an hour. With TCP_USER_TIMEOUT it would close it
// earlier, but also if the peer acknowledges everything and merely has no room for more, such as a process in a
// debugger. A peer without room must not count as lost. The kernel of a stopped or slow process acknowledges in its
// place, so only a host that is gone, or cut off, is silent.
// Called by SocketMesh, often, and OutgoingConnection (sight_of). A plain value, for one connection.
#pragma once

#include <chrono>

struct tcp_info;

namespace ciranda {

class Silence {
 public:
  using Clock = std::chrono::steady_clock;

  // The number of looks within the limit.
  static constexpr int kLooks = 8;

  // The kernel's state of a connection.
  struct Sight {
    bool was_sent_in_vain = false;    // data was retransmitted without an answer so far
    bool was_probed_in_vain = false;  // likewise for probes: the peer had no room for more, or nothing was to be sent
    bool has_outstanding = false;     // data is unacknowledged, or not sent yet
    std::chrono::milliseconds last_answer_ago{};
  };
  static Sight sight_of(int fd);
  static Sight sight_in(const tcp_info& info);

  // Whether the silence has lasted for `limit`, or will have at the next look: the last answer is as old as that, and
  // what was sent since has been in vain at several looks; probes, which are few, for as long as the limit. A look that
  // comes late counts as if it had come in time: if this whole machine stood still, the peer could not answer
  // meanwhile.
  bool is_too_long(const Sight& sight, Clock::time_point now, Clock::duration limit);

 private:
  Clock::time_point looked_at_{};
  Clock::duration in_vain_for_{};
  bool was_in_vain_ = false;
};

}  // namespace ciranda
