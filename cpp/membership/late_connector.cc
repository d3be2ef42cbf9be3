#include "membership/late_connector.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "transport/socket.hpp"

namespace ciranda {
namespace {

// A longer time between two looks counts as this: meanwhile this process, or its machine, stood still.
constexpr std::chrono::milliseconds kLongestWait{500};

Role role_of(LateConnections::Use use) { return use == LateConnections::Use::kControl ? Role::kControl : Role::kData; }

}  // namespace

LateConnector::LateConnector(std::unique_ptr<PairConnector> connector, LateConnectorOptions options)
    : connector_(std::move(connector)), options_(std::move(options)), polled_at_(std::chrono::steady_clock::now()) {
  options_.lacks_control.resize(options_.may_connect.size());
  for (std::vector<Pair>& each : pairs_) each.resize(options_.may_connect.size());
  for (std::size_t rank = 0; rank < options_.may_connect.size(); ++rank) {
    const bool may_connect = options_.may_connect[rank];
    if (!may_connect || !options_.lacks_control[rank])
      pair(Use::kControl, static_cast<int>(rank)).state = State::kEnded;
    if (!may_connect) pair(Use::kData, static_cast<int>(rank)).state = State::kEnded;
  }
  connector_->serve([this](const Purpose& purpose) { return admits(purpose); });
}

// A connection for data comes only after that for control has been made.
bool LateConnector::admits(const Purpose& purpose) const {
  if (purpose.from <= static_cast<std::uint32_t>(options_.rank)) return false;
  const int from = static_cast<int>(purpose.from);
  const bool has_control = pair(Use::kControl, from).state == State::kEnded;
  if (purpose.role == Role::kControl) return !has_control && purpose.index == 0;
  return purpose.role == Role::kData && has_control && purpose.index < options_.n_sockets &&
         pair(Use::kData, from).state != State::kEnded;
}

bool LateConnector::connect(Use use, int peer) {
  if (peer >= options_.rank) return false;
  Pair& begun = pair(use, peer);
  if (begun.state != State::kNone) return true;
  begun.state = State::kBegun;
  ++n_begun_;
  connector_->begin(role_of(use), peer, n_sockets(use));
  return true;
}

// A peer that has admitted this rank may have sent all its data, and left. What has come to it goes on.
void LateConnector::forget(int peer) {
  end(Use::kControl, peer);
  if (is_begun(Use::kData, peer) && is_under_way(Use::kData, peer)) {
    pair(Use::kData, peer).state = State::kLast;
  } else {
    end(Use::kData, peer);
  }
}

bool LateConnector::is_begun(Use use, int peer) const {
  const State state = pair(use, peer).state;
  return state == State::kBegun || state == State::kLast;
}

// Whether each of its connections is made, or the peer has taken it and may yet admit it.
bool LateConnector::is_under_way(Use use, int peer) const {
  for (int index = 0; index < n_sockets(use); ++index) {
    const bool is_one =
        connector_->is_ready_at(role_of(use), peer, index) || connector_->is_connected(role_of(use), peer, index);
    if (!is_one) return false;
  }
  return true;
}

void LateConnector::end(Use use, int peer) {
  if (is_begun(use, peer)) --n_begun_;
  pair(use, peer).state = State::kEnded;
  connector_->drop(role_of(use), peer, n_sockets(use));
}

std::vector<LateConnections::Outcome> LateConnector::poll() {
  connector_->advance();
  const auto now = std::chrono::steady_clock::now();
  const auto since_poll = std::min<std::chrono::steady_clock::duration>(now - polled_at_, kLongestWait);
  polled_at_ = now;
  std::vector<Outcome> outcomes;
  for (const Use use : {Use::kControl, Use::kData}) {
    for (int peer = 0; peer < static_cast<int>(options_.may_connect.size()); ++peer) {
      std::optional<Outcome> ended = outcome_of(use, peer, since_poll);
      if (ended) outcomes.push_back(std::move(*ended));
    }
  }
  return outcomes;
}

std::optional<LateConnections::Outcome> LateConnector::outcome_of(Use use, int peer,
                                                                  std::chrono::steady_clock::duration since_poll) {
  Pair& one = pair(use, peer);
  if (one.state == State::kEnded) return std::nullopt;
  Outcome outcome{use, peer, {}, {}};
  if (connector_->is_ready(role_of(use), peer, n_sockets(use))) {
    outcome.sockets = take(use, peer);
  } else if (one.state == State::kLast) {
    if (!is_under_way(use, peer)) end(use, peer);
    return std::nullopt;
  } else if (one.state == State::kBegun) {
    one.waited += since_poll;
    outcome.why_not = why_given_up(use, peer);
    if (outcome.why_not.empty()) return std::nullopt;
  } else {
    return std::nullopt;
  }
  end(use, peer);
  return outcome;
}

std::vector<KeyedSocket> LateConnector::take(Use use, int peer) {
  std::vector<KeyedSocket> sockets;
  for (int index = 0; index < n_sockets(use); ++index) {
    sockets.push_back(connector_->take(role_of(use), peer, index));
    if (use == Use::kData && options_.n_bytes_to_send > 0)
      make_room_to_send(sockets.back().fd.get(), options_.n_bytes_to_send);
  }
  return sockets;
}

// Empty while the pair is to be waited for.
std::string LateConnector::why_given_up(Use use, int peer) const {
  const Role role = role_of(use);
  for (int index = 0; index < n_sockets(use); ++index) {
    const Status& failure = connector_->failure(role, peer, index);
    if (!failure.ok()) return failure.message();
    const bool is_over_time = pair(use, peer).waited > options_.limit && !connector_->is_ready_at(role, peer, index) &&
                              !connector_->is_unanswered(role, peer, index);
    if (!is_over_time) continue;
    const auto seconds = std::lround(std::chrono::duration<double>(options_.limit).count());
    const std::string reason = connector_->last_reason(role, peer, index);
    return connector_->name(peer) + " could not be reached in " + std::to_string(seconds) +
           " seconds (CIRANDA_START_TIMEOUT): " +
           (reason.empty() ? "nothing answers at " + connector_->address(peer, index).to_string() : reason);
  }
  return {};
}

}  // namespace ciranda
