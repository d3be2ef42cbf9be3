// OutgoingConnection: one attempt to connect to an address and to authenticate.
//
// Called by PairConnector and StoreClient; one thread. It uses the caller's event loop (level-triggered, the descriptor
// is the token).
// Failure: state() kFailed with a reason that names the address. for_good(): another attempt would end the same way,
// because the other end answered and refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "membership/handshake.hpp"
#include "transport/event_loop.hpp"
#include "transport/silence.hpp"
#include "transport/socket_address.hpp"

namespace ciranda {

class OutgoingConnection {
 public:
  enum class State : std::uint8_t { kTrying, kReady, kFailed };

  // Starts to connect. `from`: see start_connecting(). REQUIRES: loop outlives the connection.
  OutgoingConnection(EventLoop& loop, const SocketAddress& to, const Credentials& credentials, const Purpose& purpose,
                     const SocketAddress& from = {});
  ~OutgoingConnection();
  OutgoingConnection(const OutgoingConnection&) = delete;
  OutgoingConnection& operator=(const OutgoingConnection&) = delete;

  std::uint64_t token() const { return static_cast<std::uint64_t>(socket_.get()); }
  void on_event();

  State state() const { return state_; }
  // The other end has taken the connection; it has not admitted it yet while state() is kTrying.
  bool is_connected() const { return connected_; }
  // Likewise, and its host has acknowledged all that was sent: it is the process that does not answer.
  bool is_unanswered() const { return connected_ && !Silence::sight_of(socket_.get()).has_outstanding; }
  const std::string& reason() const { return reason_; }
  bool for_good() const { return for_good_; }
  bool nobody_listens() const { return nobody_listens_; }

  // REQUIRES: state() is kReady. The socket is no longer on the loop.
  KeyedSocket take();

 private:
  void on_connected();
  void on_readable();
  void flush();
  void fail(const Status& status);
  void fail(std::string reason, bool for_good = false);

  EventLoop* loop_;
  SocketAddress to_;
  UniqueFd socket_;
  std::unique_ptr<ConnectingHandshake> handshake_;
  bool connected_ = false;
  State state_ = State::kTrying;
  bool for_good_ = false;
  bool nobody_listens_ = false;
  std::string reason_;
};

}  // namespace ciranda
