#include "membership/store_client.hpp"

#include <sys/socket.h>

#include <array>
#include <memory>
#include <utility>

#include "membership/blocking_io.hpp"
#include "membership/outgoing_connection.hpp"

namespace ciranda {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{100};
// The store itself answers an exchange that times out, with a better error than this client's: wait a little longer.
constexpr std::chrono::milliseconds kGrace{2000};

Status from_store(const Status& status) {
  if (status.kind() == ErrorKind::kAborted) return status;
  return {status.kind(), "the job's store " + status.message() + ": is the launcher still running?"};
}

// One candidate address, and the attempts to reach it.
struct Candidate {
  SocketAddress address;
  std::unique_ptr<OutgoingConnection> connection;
  Clock::time_point next_try;
  bool hopeless = false;
  std::string last_reason;
};

class Search {
 public:
  Search(EventLoop& loop, const Credentials& credentials, Purpose purpose, const std::vector<SocketAddress>& addresses)
      : loop_(loop), credentials_(credentials), purpose_(purpose) {
    for (const SocketAddress& address : addresses) {
      candidates_.push_back({address, nullptr, Clock::time_point::min(), false, ""});
    }
  }

  Result<KeyedSocket> run(const WaitLimit& limit) {
    for (;;) {
      begin_tries(Clock::now());
      for (Candidate& each : candidates_) {
        if (each.connection && each.connection->state() == OutgoingConnection::State::kReady) {
          return each.connection->take();
        }
      }
      if (all_hopeless()) return Status::invalid_argument("no candidate is the job's store: " + reasons());
      if (limit.is_reached()) return Status::timeout("cannot reach the job's store: " + reasons());
      if (Status going = limit.check(); !going.ok()) return going;
      for (const EventLoop::Event& event : loop_.wait(limit.slice_ms(Clock::now() + kBetweenTries))) {
        on_event(event.token);
      }
    }
  }

 private:
  void begin_tries(Clock::time_point now) {
    for (Candidate& each : candidates_) {
      if (!each.connection && !each.hopeless && each.next_try <= now) {
        each.connection = std::make_unique<OutgoingConnection>(loop_, each.address, credentials_, purpose_);
        settle(each);
      }
    }
  }

  void on_event(std::uint64_t token) {
    for (Candidate& each : candidates_) {
      if (each.connection && each.connection->token() == token) {
        each.connection->on_event();
        settle(each);
        return;
      }
    }
  }

  // Drops a failed attempt, but keeps its reason.
  static void settle(Candidate& candidate) {
    if (candidate.connection->state() != OutgoingConnection::State::kFailed) return;
    candidate.last_reason = candidate.connection->reason();
    candidate.hopeless = candidate.connection->for_good();
    candidate.next_try = Clock::now() + kBetweenTries;
    candidate.connection.reset();
  }

  bool all_hopeless() const {
    return std::all_of(candidates_.begin(), candidates_.end(), [](const Candidate& each) { return each.hopeless; });
  }

  std::string reasons() const {
    std::string text;
    for (const Candidate& each : candidates_) {
      text += (text.empty() ? "" : "; ");
      text += each.last_reason.empty() ? each.address.to_string() + " does not answer" : each.last_reason;
    }
    return text;
  }

  EventLoop& loop_;
  const Credentials& credentials_;
  Purpose purpose_;
  std::vector<Candidate> candidates_;
};

}  // namespace

Result<StoreClient> StoreClient::connect(const std::vector<std::string>& candidates, const Credentials& credentials,
                                         int rank, const WaitLimit& limit) {
  std::vector<SocketAddress> addresses;
  for (const std::string& candidate : candidates) {
    auto resolved = SocketAddress::resolve(candidate);
    if (!resolved.ok()) {
      return Status::invalid_argument("the address of the job's store: " + resolved.status().message());
    }
    addresses.insert(addresses.end(), resolved.value().begin(), resolved.value().end());
  }
  if (addresses.empty()) return Status::invalid_argument("no address of the job's store is given");
  auto loop = EventLoop::create();
  if (!loop.ok()) return loop.status();
  Purpose purpose;
  purpose.from = static_cast<std::uint32_t>(rank);
  auto socket = Search(loop.value(), credentials, purpose, addresses).run(limit);
  if (!socket.ok()) return socket.status();
  return StoreClient(std::move(socket).value(), rank, std::move(addresses));
}

Result<std::vector<Blob>> StoreClient::exchange(const std::string& key, int size, Blob blob, const WaitLimit& limit) {
  if (key.size() > kMostKeyBytes || blob.size() > kMostBlobBytes) {
    return Status::invalid_argument("a key of " + std::to_string(key.size()) + " bytes with a blob of " +
                                    std::to_string(blob.size()) + " bytes is too much for the store");
  }
  ExchangeRequest request{key, static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(size), limit.left(),
                          std::move(blob)};
  if (Status sent = send(request, limit); !sent.ok()) return from_store(sent);
  auto reply = receive(request.size, limit.longer_by(kGrace));
  if (!reply.ok()) return from_store(reply.status());
  auto blobs = decode_reply(reply.value());
  if (blobs.ok() && blobs.value().size() != request.size) {
    return Status::internal("the job's store answered for " + std::to_string(blobs.value().size()) + " ranks of " +
                            std::to_string(size));
  }
  return blobs;
}

void StoreClient::withdraw(const std::vector<std::string>& keys, int size, const std::string& why,
                           const WaitLimit& limit) {
  for (const std::string& key : keys) {
    const ExchangeRequest request{
        key, static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(size), std::chrono::milliseconds(0), {},
        why};
    if (send(request, limit).ok()) (void)receive(request.size, limit);  // its reply: it has read the report
  }
}

Status StoreClient::look() {
  std::array<std::byte, 4096> bytes;
  const ssize_t n_read = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n_read <= 0) return {};
  messages_.receive(std::span(bytes).first(static_cast<std::size_t>(n_read)));
  auto message = messages_.next(kMostErrorBytes + 64);
  if (!message.ok()) return from_store(message.status());
  return message.value() ? decode_reply(*message.value()).status() : Status();
}

Status StoreClient::send(const ExchangeRequest& request, const WaitLimit& limit) {
  return send_all(socket_.get(), messages_.seal(encode_request(request)), limit);
}

Result<std::vector<std::byte>> StoreClient::receive(std::uint32_t size, const WaitLimit& limit) {
  return receive_message(socket_.get(), messages_, most_reply_bytes(size), limit);
}

}  // namespace ciranda
