#include "membership/pair_connector.hpp"

#include <poll.h>

#include <algorithm>

#include "membership/blocking_io.hpp"
#include "transport/tcp_channel.hpp"

namespace ciranda {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{20};
// Peers listen before their addresses are published: a refused connection means that the peer is gone, or that a
// firewall refuses.
constexpr std::chrono::milliseconds kPatienceWithNobody{1000};
// Those who have joined belong to the job. If one refuses now, its answer, or the question, was changed on its way, or
// another process has its port.
constexpr std::chrono::milliseconds kPatienceWithMembers{1000};

std::string ended(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : " and ") + name;
  return list + " ended while the job was starting";
}

}  // namespace

Result<std::unique_ptr<PairConnector>> PairConnector::create(std::vector<UniqueFd> listeners,
                                                             PairConnectorOptions options) {
  auto loop = EventLoop::create();
  if (!loop.ok()) return loop.status();
  AcceptorOptions accepting;
  accepting.credentials = options.credentials;
  accepting.expectation = {false, static_cast<std::uint32_t>(options.rank),
                           static_cast<std::uint32_t>(options.peers.size())};
  accepting.deadline = options.handshake_limit;
  accepting.most_half_open += options.peers.size();
  accepting.on_refused = options.on_refused;
  auto connector = std::make_unique<PairConnector>(std::move(loop).value(), std::move(options));
  auto acceptor = Acceptor::create(connector->loop_, std::move(listeners), std::move(accepting));
  if (!acceptor.ok()) return acceptor.status();
  connector->acceptor_ = std::make_unique<Acceptor>(std::move(acceptor).value());
  return connector;
}

Status PairConnector::connect(Role role, const std::vector<int>& peers, int n_connections) {
  std::set<Key> missing;
  for (const int rank : peers) {
    for (int index = 0; index < n_connections; ++index) {
      const Key key{role, rank, index};
      if (!ready_.contains(key)) missing.insert(key);
    }
    if (rank < options_.rank) begin(role, rank, n_connections);
  }
  while (!missing.empty()) {
    if (Clock::now() >= options_.limit.deadline) return timed_out(missing);
    if (Status wanted = options_.limit.check(); !wanted.ok()) return wanted;
    if (Status going = options_.look ? options_.look() : Status(); !going.ok()) return going;
    advance(true);
    if (Status going = first_failure(); !going.ok()) return going;
    std::erase_if(missing, [this](const Key& key) { return ready_.contains(key); });
    if (Status alive = missing.empty() ? Status() : look_for_dead(); !alive.ok()) return alive;
  }
  return {};
}

void PairConnector::begin(Role role, int peer, int n_connections) {
  for (int index = 0; index < n_connections; ++index) attempts_.try_emplace({role, peer, index});
}

void PairConnector::advance(bool waits) {
  const auto now = Clock::now();
  begin_tries(now);
  const auto events = loop_.wait(waits && first_failure().ok() ? timeout_ms(now) : 0);
  for (const EventLoop::Event& event : std::vector(events.begin(), events.end())) on_event(event.token, Clock::now());
  acceptor_->expire(Clock::now());
}

void PairConnector::drop(Role role, int peer, int n_connections) {
  for (int index = 0; index < n_connections; ++index) {
    attempts_.erase({role, peer, index});
    ready_.erase({role, peer, index});
  }
}

bool PairConnector::is_ready(Role role, int peer, int n_connections) const {
  for (int index = 0; index < n_connections; ++index) {
    if (!is_ready_at(role, peer, index)) return false;
  }
  return true;
}

const Status& PairConnector::failure(Role role, int peer, int index) const {
  static const Status kNone;
  const auto attempt = attempts_.find({role, peer, index});
  return attempt == attempts_.end() ? kNone : attempt->second.failure;
}

bool PairConnector::is_connected(Role role, int peer, int index) const {
  const auto attempt = attempts_.find({role, peer, index});
  return attempt != attempts_.end() && attempt->second.connection && attempt->second.connection->is_connected();
}

bool PairConnector::is_unanswered(Role role, int peer, int index) const {
  return is_connected(role, peer, index) && attempts_.at({role, peer, index}).connection->is_unanswered();
}

std::string PairConnector::last_reason(Role role, int peer, int index) const {
  const auto attempt = attempts_.find({role, peer, index});
  return attempt == attempts_.end() ? std::string() : attempt->second.last_reason;
}

void PairConnector::serve(std::function<bool(const Purpose&)> admits) {
  have_joined_ = true;
  options_.admits = std::move(admits);
  options_.limit = {};
  options_.look = {};
  for (PeerAddress& each : options_.peers) each.process_fd = -1;
}

Status PairConnector::first_failure() const {
  for (const auto& [key, attempt] : attempts_) {
    if (!attempt.failure.ok()) return attempt.failure;
  }
  return {};
}

KeyedSocket PairConnector::take(Role role, int peer, int index) {
  attempts_.erase({role, peer, index});  // it is not made again
  auto node = ready_.extract({role, peer, index});
  return std::move(node.mapped());
}

SocketAddress PairConnector::source_for(const SocketAddress& to, std::size_t index) const {
  const std::vector<InterfaceAddress>& ours = options_.interfaces;
  if (ours.size() < 2) return {};
  const InterfaceAddress& in_place = ours[index % ours.size()];
  if (in_place.is_next_to(to)) return in_place.address;
  const auto near = std::find_if(ours.begin(), ours.end(), [&to](const auto& each) { return each.is_next_to(to); });
  if (near != ours.end()) return near->address;
  return in_place.address.family() == to.family() ? in_place.address : SocketAddress();
}

void PairConnector::begin_tries(Clock::time_point now) {
  for (auto& [key, attempt] : attempts_) {
    if (attempt.connection || !attempt.failure.ok() || ready_.contains(key) || attempt.next_try > now) continue;
    const Purpose purpose{key.role, static_cast<std::uint32_t>(options_.rank), static_cast<std::uint32_t>(key.peer),
                          static_cast<std::uint32_t>(options_.peers.size()), static_cast<std::uint8_t>(key.index)};
    const SocketAddress& to = address(key.peer, key.index);
    const SocketAddress from = source_for(to, static_cast<std::size_t>(key.index));
    attempt.connection = std::make_unique<OutgoingConnection>(loop_, to, options_.credentials, purpose, from);
    settle(key, attempt, now);
  }
}

void PairConnector::on_event(std::uint64_t token, Clock::time_point now) {
  if (acceptor_->owns(token)) {
    if (auto admitted = acceptor_->on_event(token, now)) keep(std::move(*admitted));
    return;
  }
  for (auto& [key, attempt] : attempts_) {
    if (attempt.connection && attempt.connection->token() == token) {
      attempt.connection->on_event();
      settle(key, attempt, now);
      return;
    }
  }
}

void PairConnector::keep(Admitted admitted) {
  const Purpose& purpose = admitted.purpose;
  if (options_.admits && !options_.admits(purpose)) {
    close_gracefully(std::move(admitted.socket.fd));
    return;
  }
  ready_.insert_or_assign({purpose.role, static_cast<int>(purpose.from), purpose.index}, std::move(admitted.socket));
}

void PairConnector::settle(const Key& key, Attempt& attempt, Clock::time_point now) {
  OutgoingConnection& connection = *attempt.connection;
  if (connection.state() == OutgoingConnection::State::kTrying) return;
  if (connection.state() == OutgoingConnection::State::kReady) {
    ready_.insert_or_assign(key, connection.take());
    attempt.connection.reset();
    return;
  }
  const bool is_other = std::exchange(attempt.last_reason, connection.reason()) != connection.reason();
  const bool nobody = connection.nobody_listens();
  const bool for_good = connection.for_good();
  attempt.connection.reset();
  attempt.next_try = now + kBetweenTries;
  const std::string failure = peer(key.peer).name + " cannot be reached: " + attempt.last_reason;
  if (for_good && !have_joined_) {
    attempt.failure = Status::invalid_argument(failure);
    return;
  }
  if (is_other && options_.on_retry) options_.on_retry(failure + "; it is tried again");
  if (!nobody && !for_good) {
    attempt.first_refused = {};
    return;
  }
  if (attempt.first_refused == Clock::time_point()) attempt.first_refused = now;
  if (now - attempt.first_refused <= (for_good ? kPatienceWithMembers : kPatienceWithNobody)) return;
  attempt.failure = Status::ranks_lost(
      failure + (for_good
                     ? ", which it did not when the job began: what the two send is changed on its way, or another "
                       "process has its port"
                     : ": it has ended, or a firewall is between"));
}

// If one rank has ended, the job fails, even if all connections to that rank are made: a missing rank may have given up
// because of it, and then never connects.
Status PairConnector::look_for_dead() const {
  const std::vector<std::string> dead = dead_peers();
  return dead.empty() ? Status() : Status::ranks_lost(ended(dead));
}

Status PairConnector::with_the_dead(const Status& error) const {
  const std::vector<std::string> dead = dead_peers();
  if (error.kind() != ErrorKind::kRanksLost || dead.empty()) return error;
  return Status::ranks_lost(error.message() + "; " + ended(dead));
}

std::vector<std::string> PairConnector::dead_peers() const {
  const std::size_t n_peers = options_.peers.size();
  // The processes of all peers, then the connections of all. poll() ignores descriptors of -1.
  std::vector<pollfd> sources;
  for (const PeerAddress& each : options_.peers) sources.push_back({each.process_fd, POLLIN, 0});
  for (int rank = 0; rank < static_cast<int>(n_peers); ++rank) {
    const auto connection = ready_.find({Role::kControl, rank, 0});
    sources.push_back({connection == ready_.end() ? -1 : connection->second.fd.get(), POLLRDHUP, 0});
  }
  (void)poll(sources.data(), sources.size(), 0);
  std::vector<std::string> dead;
  for (std::size_t i = 0; i < n_peers; ++i) {
    if (sources[i].revents != 0 || sources[n_peers + i].revents != 0) dead.push_back(options_.peers[i].name);
  }
  return dead;
}

Status PairConnector::timed_out(const std::set<Key>& missing) const {
  std::string text;
  int last_named = -1;
  for (const Key& key : missing) {
    if (std::exchange(last_named, key.peer) == key.peer) continue;
    const auto attempt = attempts_.find(key);
    text += (text.empty() ? "" : "; ") + peer(key.peer).name;
    if (attempt == attempts_.end()) {
      text += " did not connect in time";
    } else if (attempt->second.last_reason.empty()) {
      text += " did not answer in time";
    } else {
      text += " could not be reached in time: " + attempt->second.last_reason;
    }
  }
  return Status::timeout(text);
}

int PairConnector::timeout_ms(Clock::time_point now) const {
  // A dead process wakes no wait on the loop, which does not have its descriptor: so it is looked for at this interval.
  auto until = now + std::chrono::milliseconds(50);
  for (const auto& [key, attempt] : attempts_) {
    if (!attempt.connection && !ready_.contains(key)) until = std::min(until, attempt.next_try);
  }
  if (const auto next = acceptor_->next_deadline(); next) until = std::min(until, *next);
  return options_.limit.slice_ms(until);
}

}  // namespace ciranda
