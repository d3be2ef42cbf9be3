// StoreExchanges: the decisions of the rendezvous store: it tracks the ranks that have arrived for each key, and
// returns the replies to send.
//
// Pure: (state, request, departure or loss, now) -> replies. No socket, no thread, no clock. Called by StoreServer, on
// its thread. An exchange of a key completes when all ranks have arrived: each gets all blobs. It fails for all at
// once, with Timeout if a rank is missing when the first timeout of a waiting rank expires; with RanksLost if a rank
// leaves while it waits, cannot take part, or is lost before it arrives; with Mismatch if ranks disagree about the
// size, or two claim the same rank. A rank that arrives at a failed exchange later gets the same error. If a rank says
// only after a completed exchange that it cannot take part, the others get the error unasked, while they are connected.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "membership/store_messages.hpp"

namespace ciranda {

using ConnectionId = std::uint64_t;

struct StoreReply {
  ConnectionId to = 0;
  std::shared_ptr<const std::vector<std::byte>> message;  // shared by all replies with the same contents
};

class StoreExchanges {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit StoreExchanges(std::uint32_t size) : size_(size) {}

  // `who`: the address of the rank that connects, for messages. A connection waits in one exchange at a time.
  std::vector<StoreReply> exchange(ConnectionId from, const std::string& who, ExchangeRequest request, TimePoint now);
  std::vector<StoreReply> on_disconnect(ConnectionId connection);
  // `rank` never arrives again.
  std::vector<StoreReply> lose(std::uint32_t rank, const std::string& why);
  std::vector<StoreReply> expire(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

 private:
  struct Participant {
    ConnectionId connection = 0;
    std::string who;
    Blob blob;
  };
  struct Exchange {
    TimePoint deadline;
    std::chrono::milliseconds patience{0};  // the timeout of the rank that set the deadline
    std::map<std::uint32_t, Participant> participants;
  };
  using Exchanges = std::map<std::string, Exchange>;
  struct Completed {
    std::string key;
    std::vector<ConnectionId> connections;
  };

  Status lost_for(const Exchange& exchange) const;  // why it never completes; OK if it can
  std::vector<StoreReply> complete(Exchanges::iterator exchange);
  std::vector<StoreReply> fail(Exchanges::iterator exchange, const Status& error);
  std::string missing(const Exchange& exchange) const;
  static std::vector<StoreReply> reply(ConnectionId to, const Status& error);

  std::uint32_t size_;
  Exchanges exchanges_;
  std::map<std::uint32_t, std::string> lost_;          // the ranks, and why
  std::deque<std::pair<std::string, Status>> failed_;  // the last few
  std::deque<Completed> completed_;                    // likewise
};

}  // namespace ciranda
