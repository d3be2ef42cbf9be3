// StoreRounds: the decisions of the rendezvous store. Who has come for which key, and what everyone is told.
//
// Pure: (state, request or departure, now) -> replies. No socket, no thread, no clock.
// A round is one key. It ends when all ranks have come (everyone gets all blobs), or for everyone at once with an
// error: a rank is missing when somebody's patience ends (Timeout), one leaves while it waits or cannot come
// (RanksLost), or ranks disagree about how many they are or who is who (Mismatch). Who comes to a failed round later is
// told the same error.
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
  std::shared_ptr<const std::vector<std::byte>> frame;  // shared by all who get the same
};

class StoreRounds {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit StoreRounds(std::uint32_t size) : size_(size) {}

  // `who` is for messages: an address. A connection waits in one round at a time.
  std::vector<StoreReply> exchange(ConnectionId from, const std::string& who, ExchangeRequest request, TimePoint now);
  std::vector<StoreReply> leave(ConnectionId connection);
  std::vector<StoreReply> expire(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

 private:
  struct Participant {
    ConnectionId connection = 0;
    std::string who;
    Blob blob;
  };
  struct Round {
    TimePoint deadline;
    std::chrono::milliseconds patience{0};  // of the rank whose deadline it is
    std::map<std::uint32_t, Participant> participants;
  };
  using Rounds = std::map<std::string, Round>;

  std::vector<StoreReply> complete(Rounds::iterator round);
  std::vector<StoreReply> fail(Rounds::iterator round, const Status& error);
  std::string missing(const Round& round) const;
  static std::vector<StoreReply> reply(ConnectionId to, const Status& error);

  std::uint32_t size_;
  Rounds rounds_;
  std::deque<std::pair<std::string, Status>> failed_;  // the last few
};

}  // namespace ciranda
