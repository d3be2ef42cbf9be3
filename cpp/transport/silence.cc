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
  return {info.tcpi_retransmits > 0, info.tcpi_probes > 0, info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0,
          std::chrono::milliseconds(info.tcpi_last_ack_recv)};
}

// The last answer may be older than the unanswered data, so this also measures for how long looks have seen that.
bool Silence::is_too_long(const Sight& sight, Clock::time_point now, Clock::duration limit) {
  const Clock::duration since_look = std::min(now - looked_at_, 2 * limit / kLooks);
  const bool is_in_vain = sight.was_sent_in_vain || sight.was_probed_in_vain;
  in_vain_for_ = is_in_vain && was_in_vain_ ? in_vain_for_ + since_look : Clock::duration{};
  was_in_vain_ = is_in_vain;
  looked_at_ = now;
  constexpr int kLooksInVain = 3;
  const int n_looks = sight.was_sent_in_vain ? kLooksInVain : kLooks;
  return is_in_vain && in_vain_for_ >= n_looks * limit / kLooks &&
         sight.last_answer_ago >= (kLooks - 1) * limit / kLooks;
}

}  // namespace ciranda
