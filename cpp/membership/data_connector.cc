#include "membership/data_connector.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "transport/socket.hpp"

namespace ciranda {
namespace {

// A longer time between two looks counts as this: meanwhile this process, or its machine, stood still.
constexpr std::chrono::milliseconds kLongestWait{500};

}  // namespace

DataConnector::DataConnector(std::unique_ptr<PairConnector> connector, DataConnectorOptions options)
    : connector_(std::move(connector)),
      options_(std::move(options)),
      pairs_(options_.may_connect.size()),
      polled_at_(std::chrono::steady_clock::now()) {
  for (std::size_t rank = 0; rank < pairs_.size(); ++rank) {
    if (!options_.may_connect[rank]) pairs_[rank].state = State::kEnded;
  }
  connector_->serve([this](const Purpose& purpose) { return admits(purpose); });
}

bool DataConnector::admits(const Purpose& purpose) const {
  return purpose.role == Role::kData && purpose.from > static_cast<std::uint32_t>(options_.rank) &&
         purpose.index < options_.n_sockets && pairs_[purpose.from].state != State::kEnded;
}

bool DataConnector::connect(int peer) {
  if (peer >= options_.rank) return false;
  Pair& pair = pairs_[static_cast<std::size_t>(peer)];
  if (pair.state != State::kNone) return true;
  pair.state = State::kBegun;
  ++n_begun_;
  connector_->begin(Role::kData, peer, options_.n_sockets);
  return true;
}

// A peer that has admitted this rank may have sent all its data, and left. What has come to it goes on.
void DataConnector::forget(int peer) {
  if (is_begun(peer) && is_under_way(peer)) {
    pairs_[static_cast<std::size_t>(peer)].state = State::kLast;
  } else {
    end(peer);
  }
}

bool DataConnector::is_begun(int peer) const {
  const State state = pairs_[static_cast<std::size_t>(peer)].state;
  return state == State::kBegun || state == State::kLast;
}

// Whether each of its connections is made, or the peer has taken it and may yet admit it.
bool DataConnector::is_under_way(int peer) const {
  for (int index = 0; index < options_.n_sockets; ++index) {
    const bool is_one =
        connector_->is_ready_at(Role::kData, peer, index) || connector_->is_connected(Role::kData, peer, index);
    if (!is_one) return false;
  }
  return true;
}

void DataConnector::end(int peer) {
  if (is_begun(peer)) --n_begun_;
  pairs_[static_cast<std::size_t>(peer)].state = State::kEnded;
  connector_->drop(Role::kData, peer, options_.n_sockets);
}

std::vector<DataConnections::Outcome> DataConnector::poll() {
  connector_->advance();
  const auto now = std::chrono::steady_clock::now();
  const auto since_poll = std::min<std::chrono::steady_clock::duration>(now - polled_at_, kLongestWait);
  polled_at_ = now;
  std::vector<Outcome> outcomes;
  for (int peer = 0; peer < static_cast<int>(pairs_.size()); ++peer) {
    Pair& pair = pairs_[static_cast<std::size_t>(peer)];
    if (pair.state == State::kEnded) continue;
    if (connector_->is_ready(Role::kData, peer, options_.n_sockets)) {
      outcomes.push_back({peer, take(peer), {}});
      end(peer);
    } else if (pair.state == State::kLast) {
      if (!is_under_way(peer)) end(peer);
    } else if (pair.state == State::kBegun) {
      pair.waited += since_poll;
      std::string why = why_given_up(peer);
      if (why.empty()) continue;
      outcomes.push_back({peer, {}, std::move(why)});
      end(peer);
    }
  }
  return outcomes;
}

std::vector<KeyedSocket> DataConnector::take(int peer) {
  std::vector<KeyedSocket> sockets;
  for (int index = 0; index < options_.n_sockets; ++index) {
    sockets.push_back(connector_->take(Role::kData, peer, index));
    if (options_.n_bytes_to_send > 0) make_room_to_send(sockets.back().fd.get(), options_.n_bytes_to_send);
  }
  return sockets;
}

// Empty while the pair is to be waited for.
std::string DataConnector::why_given_up(int peer) const {
  for (int index = 0; index < options_.n_sockets; ++index) {
    const Status& failure = connector_->failure(Role::kData, peer, index);
    if (!failure.ok()) return failure.message();
    const bool is_over_time = pairs_[static_cast<std::size_t>(peer)].waited > options_.limit &&
                              !connector_->is_ready_at(Role::kData, peer, index) &&
                              !connector_->is_unanswered(Role::kData, peer, index);
    if (!is_over_time) continue;
    const auto seconds = std::lround(std::chrono::duration<double>(options_.limit).count());
    const std::string reason = connector_->last_reason(Role::kData, peer, index);
    return connector_->name(peer) + " could not be reached in " + std::to_string(seconds) +
           " seconds (CIRANDA_START_TIMEOUT): " +
           (reason.empty() ? "nothing answers at " + connector_->address(peer, index).to_string() : reason);
  }
  return {};
}

}  // namespace ciranda
