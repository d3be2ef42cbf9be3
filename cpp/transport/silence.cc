#include "transport/silence.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace ciranda {

Silence::Sight Silence::sight_of(int fd) {
  tcp_info info{};
  socklen_t n_bytes = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n_bytes) == 0 ? sight_in(info) : Sight{};
}

Silence::Sight Silence::sight_in(const tcp_info& info) {
  // Only probes are sent to a peer without room, and on a connection that was idle for long.
  const bool was_sent_in_vain = info.tcpi_retransmits > 0 || info.tcpi_probes > 0;
  return {was_sent_in_vain, std::chrono::milliseconds(info.tcpi_last_ack_recv)};
}

// The last answer may be older than the unanswered data, so the silence counts from its first sight at the earliest.
Silence::Clock::duration Silence::lasts(const Sight& sight, Clock::time_point now) {
  if (!sight.was_sent_in_vain) {
    since_.reset();
    return {};
  }
  since_ = since_ ? std::max<Clock::time_point>(*since_, now - sight.last_answer_ago) : now;
  return now - *since_;
}

}  // namespace ciranda
