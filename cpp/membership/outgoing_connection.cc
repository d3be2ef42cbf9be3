#include "membership/outgoing_connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/fill_random.hpp"
#include "transport/socket.hpp"
#include "transport/tcp_channel.hpp"

namespace ciranda {

OutgoingConnection::OutgoingConnection(EventLoop& loop, const SocketAddress& to, const Credentials& credentials,
                                       const Purpose& purpose, const SocketAddress& from)
    : loop_(&loop), to_(to) {
  Nonce nonce{};
  if (Status filled = fill_random(nonce); !filled.ok()) {
    fail(filled.message(), true);
    return;
  }
  handshake_ = std::make_unique<ConnectingHandshake>(credentials, purpose, nonce);
  auto started = start_connecting(to, from);
  if (!started.ok()) {
    fail(started.status());
    return;
  }
  socket_ = std::move(started).value();
  if (Status added = loop.add(socket_.get(), EPOLLOUT, token()); !added.ok()) fail(added);
}

OutgoingConnection::~OutgoingConnection() {
  if (socket_.valid()) loop_->remove(socket_.get());
}

void OutgoingConnection::on_event() {
  if (state_ != State::kTrying) return;
  if (!connected_) {
    on_connected();
  } else {
    on_readable();
  }
}

void OutgoingConnection::on_connected() {
  const Status connected = finish_connecting(socket_.get(), to_);
  if (!connected.ok()) {
    fail(connected);
    return;
  }
  connected_ = true;
  tune_connection(socket_.get());
  loop_->change(socket_.get(), EPOLLIN, token());
  flush();
}

void OutgoingConnection::on_readable() {
  std::array<std::byte, Handshake::kMostBytes> bytes;
  const ssize_t n_read = recv(socket_.get(), bytes.data(), std::min(bytes.size(), handshake_->wants()), MSG_DONTWAIT);
  if (n_read < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n_read <= 0) {
    fail(to_.to_string() + " ended the connection before it was admitted: the output of that process may say why");
    return;
  }
  handshake_->receive(std::span(bytes).first(static_cast<std::size_t>(n_read)));
  flush();
  if (state_ != State::kTrying) return;
  if (handshake_->verdict() == Verdict::kRefused) {
    fail(to_.to_string() + " " + handshake_->reason(), handshake_->lasts());
  } else if (handshake_->verdict() == Verdict::kAccepted) {
    state_ = State::kReady;
  }
}

void OutgoingConnection::flush() {
  const auto bytes = handshake_->take_output();
  if (!bytes.empty() && send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
                            static_cast<ssize_t>(bytes.size())) {
    fail(to_.to_string() + " ended the connection");
  }
}

void OutgoingConnection::fail(const Status& status) {
  nobody_listens_ = status.kind() == ErrorKind::kRanksLost;
  fail(status.message(), status.kind() == ErrorKind::kInvalidArgument);
}

void OutgoingConnection::fail(std::string reason, bool for_good) {
  state_ = State::kFailed;
  reason_ = std::move(reason);
  for_good_ = for_good;
  if (socket_.valid()) {
    loop_->remove(socket_.get());
    close_gracefully(std::move(socket_));
  }
}

KeyedSocket OutgoingConnection::take() {
  loop_->remove(socket_.get());
  return {std::move(socket_), handshake_->keys()};
}

}  // namespace ciranda
