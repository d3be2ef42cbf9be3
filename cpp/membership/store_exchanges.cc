#include "membership/store_exchanges.hpp"

#include "base/earliest.hpp"
#include "base/list_ranks.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kFailuresRemembered = 64;
constexpr std::size_t kCompletedRemembered = 4;

std::string seconds(std::chrono::milliseconds time) {
  const auto ms = time.count();
  std::string text = std::to_string(ms / 1000);
  if (ms % 1000 != 0) text += "." + std::to_string(ms % 1000 / 100);
  return text + " s";
}

std::shared_ptr<const std::vector<std::byte>> shared(std::vector<std::byte> message) {
  return std::make_shared<const std::vector<std::byte>>(std::move(message));
}

}  // namespace

std::vector<StoreReply> StoreExchanges::exchange(ConnectionId from, const std::string& who, ExchangeRequest request,
                                                 TimePoint now) {
  for (const auto& [key, error] : failed_) {
    if (key == request.key) return reply(from, error);
  }
  const std::string rank = "rank " + std::to_string(request.rank) + " (" + who + ")";
  const Status absent =
      request.why_absent.empty() ? Status() : Status::ranks_lost(rank + " could not join: " + request.why_absent);
  for (const Completed& each : completed_) {
    if (absent.ok() || each.key != request.key) continue;
    auto replies = reply(from, absent);
    for (const ConnectionId other : each.connections) replies.push_back({other, replies.front().message});
    return replies;
  }
  const auto [exchange, is_new] = exchanges_.try_emplace(request.key, Exchange{});
  Exchange& state = exchange->second;
  const auto deadline = now + request.timeout;
  if (is_new || deadline < state.deadline) {
    state.deadline = deadline;
    state.patience = request.timeout;
  }
  const auto [place, is_first] =
      state.participants.try_emplace(request.rank, Participant{from, who, std::move(request.blob)});
  Status error;
  if (!absent.ok()) {
    error = absent;
  } else if (request.size != size_) {
    error = Status::mismatch(rank + " was started for a job of " + std::to_string(request.size) +
                             " ranks, but this job has " + std::to_string(size_));
  } else if (!is_first) {
    error = Status::mismatch("two processes came as rank " + std::to_string(request.rank) + ": one from " +
                             place->second.who + ", one from " + who);
  } else {
    error = lost_for(state);
  }
  if (!error.ok()) {
    auto replies = fail(exchange, error);
    if (!is_first) replies.push_back(reply(from, error).front());
    return replies;
  }
  return state.participants.size() == size_ ? complete(exchange) : std::vector<StoreReply>();
}

std::vector<StoreReply> StoreExchanges::on_disconnect(ConnectionId connection) {
  for (auto exchange = exchanges_.begin(); exchange != exchanges_.end(); ++exchange) {
    auto& participants = exchange->second.participants;
    for (auto each = participants.begin(); each != participants.end(); ++each) {
      if (each->second.connection != connection) continue;
      const Status error = Status::ranks_lost("rank " + std::to_string(each->first) + " (" + each->second.who +
                                              ") left while the job was starting");
      participants.erase(each);
      return fail(exchange, error);
    }
  }
  return {};
}

std::vector<StoreReply> StoreExchanges::lose(std::uint32_t rank, const std::string& why) {
  lost_.emplace(rank, why);
  std::vector<StoreReply> replies;
  for (auto exchange = exchanges_.begin(); exchange != exchanges_.end();) {
    const auto next = std::next(exchange);
    if (const Status error = lost_for(exchange->second); !error.ok()) {
      auto more = fail(exchange, error);
      replies.insert(replies.end(), more.begin(), more.end());
    }
    exchange = next;
  }
  return replies;
}

std::vector<StoreReply> StoreExchanges::expire(TimePoint now) {
  std::vector<StoreReply> replies;
  for (auto exchange = exchanges_.begin(); exchange != exchanges_.end();) {
    const auto next = std::next(exchange);
    if (exchange->second.deadline <= now) {
      auto more = fail(exchange, Status::timeout(missing(exchange->second) + " of " + std::to_string(size_) +
                                                 " did not come within " + seconds(exchange->second.patience)));
      replies.insert(replies.end(), more.begin(), more.end());
    }
    exchange = next;
  }
  return replies;
}

std::optional<StoreExchanges::TimePoint> StoreExchanges::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [key, exchange] : exchanges_) next = earliest(next, exchange.deadline);
  return next;
}

Status StoreExchanges::lost_for(const Exchange& exchange) const {
  for (const auto& [rank, why] : lost_) {
    if (!exchange.participants.contains(rank)) {
      return Status::ranks_lost("rank " + std::to_string(rank) + " does not come: " + why);
    }
  }
  return {};
}

std::vector<StoreReply> StoreExchanges::complete(Exchanges::iterator exchange) {
  std::vector<Blob> blobs;
  std::vector<StoreReply> replies;
  for (auto& [rank, participant] : exchange->second.participants) {
    blobs.push_back(std::move(participant.blob));
    replies.push_back({participant.connection, nullptr});
  }
  const auto message = shared(encode_blobs(blobs));
  Completed completed{exchange->first, {}};
  for (StoreReply& each : replies) {
    each.message = message;
    completed.connections.push_back(each.to);
  }
  completed_.push_back(std::move(completed));
  if (completed_.size() > kCompletedRemembered) completed_.pop_front();
  exchanges_.erase(exchange);
  return replies;
}

std::vector<StoreReply> StoreExchanges::fail(Exchanges::iterator exchange, const Status& error) {
  const auto message = shared(encode_error(error));
  std::vector<StoreReply> replies;
  for (const auto& [rank, participant] : exchange->second.participants)
    replies.push_back({participant.connection, message});
  failed_.emplace_back(exchange->first, error);
  if (failed_.size() > kFailuresRemembered) failed_.pop_front();
  exchanges_.erase(exchange);
  return replies;
}

std::string StoreExchanges::missing(const Exchange& exchange) const {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (!exchange.participants.contains(rank)) ranks.push_back(rank);
  }
  return list_ranks(ranks);
}

std::vector<StoreReply> StoreExchanges::reply(ConnectionId to, const Status& error) {
  return {{to, shared(encode_error(error))}};
}

}  // namespace ciranda
