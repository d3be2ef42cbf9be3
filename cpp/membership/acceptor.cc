#include "membership/acceptor.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/earliest.hpp"
#include "base/fill_random.hpp"
#include "transport/socket.hpp"
#include "transport/tcp_channel.hpp"

namespace ciranda {
namespace {

// These messages are far smaller than any socket's buffer: one that does not fit at once never will.
bool send_all(int fd, const std::vector<std::byte>& bytes) {
  return bytes.empty() ||
         send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

Result<Acceptor> Acceptor::create(EventLoop& loop, std::vector<UniqueFd> listeners, AcceptorOptions options) {
  for (const UniqueFd& listener : listeners) {
    Status added = loop.add(listener.get(), EPOLLIN, static_cast<std::uint64_t>(listener.get()));
    if (!added.ok()) return added;
  }
  return Acceptor(loop, std::move(listeners), std::move(options));
}

bool Acceptor::owns(std::uint64_t token) const {
  return half_open_.contains(static_cast<int>(token)) ||
         std::any_of(listeners_.begin(), listeners_.end(),
                     [token](const UniqueFd& listener) { return static_cast<std::uint64_t>(listener.get()) == token; });
}

std::optional<Admitted> Acceptor::on_event(std::uint64_t token, Clock::time_point now) {
  const int fd = static_cast<int>(token);
  const auto found = half_open_.find(fd);
  if (found == half_open_.end()) {
    accept_all(fd, now);
    return std::nullopt;
  }
  HalfOpen& peer = found->second;
  std::array<std::byte, Handshake::kMostBytes> bytes;
  const ssize_t n_read = recv(fd, bytes.data(), std::min(bytes.size(), peer.handshake.wants()), MSG_DONTWAIT);
  if (n_read < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (n_read <= 0) {
    // A rank that tries several addresses of this one closes all but the first that answers: no refusal to report.
    let_go(fd);
    return std::nullopt;
  }
  peer.handshake.receive(std::span(bytes).first(static_cast<std::size_t>(n_read)));
  const bool sent = send_all(fd, peer.handshake.take_output());
  if (peer.handshake.verdict() == Verdict::kRefused || !sent) {
    refuse(fd, sent ? peer.handshake.reason() : "does not read what is sent to it");
    return std::nullopt;
  }
  if (peer.handshake.verdict() == Verdict::kPending) return std::nullopt;
  Admitted admitted{{std::move(peer.socket), peer.handshake.keys()}, peer.address, peer.handshake.purpose()};
  loop_->remove(fd);
  half_open_.erase(found);
  return admitted;
}

void Acceptor::accept_all(int listener, Clock::time_point now) {
  constexpr int kMostAtOnce = 64;
  spare_.keep_back();
  for (int i = 0; i < kMostAtOnce; ++i) {
    UniqueFd socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      admit_to_handshake(std::move(socket), now);
    } else if (errno == EMFILE || errno == ENFILE) {
      if (!accept_at_limit(listener, now)) return;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;
    }
  }
}

void Acceptor::admit_to_handshake(UniqueFd socket, Clock::time_point now) {
  if (half_open_.size() >= options_.most_half_open) drop_oldest();
  Nonce nonce{};
  const int fd = socket.get();
  if (!fill_random(nonce).ok() || !loop_->add(fd, EPOLLIN, static_cast<std::uint64_t>(fd)).ok()) return;
  tune_connection(fd);
  const SocketAddress address = SocketAddress::peer_of(fd);
  half_open_.emplace(
      fd, HalfOpen{std::move(socket), address, AcceptingHandshake(options_.credentials, options_.expectation, nonce),
                   now + options_.deadline, n_accepted_++});
}

void Acceptor::drop_oldest() {
  const auto oldest = std::min_element(half_open_.begin(), half_open_.end(), [](const auto& left, const auto& right) {
    return left.second.number < right.second.number;
  });
  if (oldest != half_open_.end()) {
    refuse(oldest->first, "was dropped for a newer one: too many connections prove nothing");
  }
}

// Returns whether one had come. Only then the oldest must make room: the system says that there is no room before it
// looks for one.
bool Acceptor::accept_at_limit(int listener, Clock::time_point now) {
  spare_.give_up();
  UniqueFd socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const bool has_come = socket.valid();
  if (has_come && !half_open_.empty()) {
    drop_oldest();
    admit_to_handshake(std::move(socket), now);
  } else if (has_come) {
    report("a connection from " + SocketAddress::peer_of(socket.get()).to_string() +
           " was ended: this process may open no more files (ulimit -n)");
    socket.reset();
  }
  spare_.keep_back();
  return has_come;
}

void Acceptor::stop_listening() {
  for (const UniqueFd& each : listeners_) (void)shutdown(each.get(), SHUT_RDWR);
}

void Acceptor::expire(Clock::time_point now) {
  std::vector<int> late;
  for (const auto& [fd, peer] : half_open_) {
    if (peer.deadline <= now) late.push_back(fd);
  }
  for (const int fd : late) refuse(fd, "did not prove in time that it belongs to the job");
}

std::optional<Clock::time_point> Acceptor::next_deadline() const {
  std::optional<Clock::time_point> next;
  for (const auto& [fd, peer] : half_open_) next = earliest(next, peer.deadline);
  return next;
}

void Acceptor::report(const std::string& refusal) {
  constexpr int kMostReported = 10;  // so that many unauthenticated peers do not cause as many lines
  if (!options_.on_refused || n_refused_ >= kMostReported) return;
  const char* const end = ++n_refused_ == kMostReported ? " (further refusals are not reported)" : "";
  options_.on_refused(refusal + end);
}

void Acceptor::refuse(int fd, const std::string& reason) {
  report("a connection from " + half_open_.find(fd)->second.address.to_string() + " " + reason);
  close_gracefully(let_go(fd));
}

UniqueFd Acceptor::let_go(int fd) {
  const auto found = half_open_.find(fd);
  UniqueFd socket = std::move(found->second.socket);
  loop_->remove(fd);
  half_open_.erase(found);
  return socket;
}

}  // namespace ciranda
