#include "membership/acceptor.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/earliest.hpp"
#include "base/fill_random.hpp"
#include "transport/socket.hpp"
#include "transport/tcp_channel.hpp"

namespace ciranda {
namespace {

constexpr const char* kNoRoom = "was ended: this process may open no more files (ulimit -n)";

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
  const bool is_full = half_open_.size() >= options_.most_half_open;
  if (is_full) drop_one("was dropped for a newer one: too many connections prove nothing");
  Nonce nonce{};
  const int fd = socket.get();
  if (!fill_random(nonce).ok() || !loop_->add(fd, EPOLLIN, static_cast<std::uint64_t>(fd)).ok()) return;
  tune_connection(fd);
  const SocketAddress address = SocketAddress::peer_of(fd);
  half_open_.emplace(fd, HalfOpen{std::move(socket), address, address.ip(),
                                  AcceptingHandshake(options_.credentials, options_.expectation, nonce),
                                  now + options_.deadline, n_accepted_++});
  if (is_full) (void)on_event(static_cast<std::uint64_t>(fd), now);  // at most its hello, by which it may stay
}

void Acceptor::drop_one(const std::string& why) {
  struct Crowd {
    std::size_t size = 0;
    const HalfOpen* oldest = nullptr;
    bool is_before(const Crowd& other) const {
      return std::pair(size, other.oldest->number) < std::pair(other.size, oldest->number);
    }
  };
  const bool do_all_know = std::all_of(half_open_.begin(), half_open_.end(),
                                       [](const auto& each) { return each.second.handshake.knows_job(); });
  std::map<std::string_view, Crowd> crowds;  // by address
  for (const auto& [fd, peer] : half_open_) {
    if (peer.handshake.knows_job() && !do_all_know) continue;
    Crowd& crowd = crowds[peer.ip];
    ++crowd.size;
    if (crowd.oldest == nullptr || peer.number < crowd.oldest->number) crowd.oldest = &peer;
  }
  const auto largest = std::max_element(crowds.begin(), crowds.end(), [](const auto& left, const auto& right) {
    return left.second.is_before(right.second);
  });
  if (largest != crowds.end()) refuse(largest->second.oldest->socket.get(), why);
}

// Returns whether one had come. Only then another must make room: the system says that there is no room before it looks
// for one.
bool Acceptor::accept_at_limit(int listener, Clock::time_point now) {
  spare_.give_up();
  UniqueFd socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const bool has_come = socket.valid();
  if (has_come && !half_open_.empty()) {
    drop_one(kNoRoom);
    admit_to_handshake(std::move(socket), now);
  } else if (has_come) {
    (void)send_all(socket.get(), AcceptingHandshake::has_no_room());
    report("a connection from " + SocketAddress::peer_of(socket.get()).to_string() + " " + kNoRoom);
    close_gracefully(std::move(socket));
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
