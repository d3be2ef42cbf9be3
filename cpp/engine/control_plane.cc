#include "engine/control_plane.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {

namespace {

std::vector<std::string> hosts_of(const Mesh& mesh) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < mesh.size(); ++rank) hosts.push_back(mesh.peer(rank).host);
  return hosts;
}

}  // namespace

ControlPlane::ControlPlane(Mesh& mesh, bool uses_relays)
    : mesh_(mesh),
      peers_(static_cast<std::size_t>(mesh.size())),
      departures_(mesh.rank(), SpanningTree(hosts_of(mesh), uses_relays)) {
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (rank == mesh.rank() || !mesh.is_connected(rank)) continue;
    peer(rank).is_open = true;
    open_.push_back(rank);
  }
}

std::string ControlPlane::peer_text(int rank) const { return mesh_.peer(rank).text(); }

std::string ControlPlane::own_text() const { return peer_text(mesh_.rank()); }

// --- sending

void ControlPlane::append(int rank, LaneId lane, const Message& message) {
  Peer& to = peer(rank);
  if (to.outgoing.empty()) awaiting_send_.push_back(rank);
  append_frame(lane, message, to.outgoing);
}

void ControlPlane::post(int rank, LaneId lane, const Message& message) {
  Peer& to = peer(rank);
  if (to.is_open) return append(rank, lane, message);
  if (to.is_gone || departures_.has_left(rank)) return;
  append(rank, lane, message);
  if (rank < mesh_.rank()) {
    mesh_.connect(rank);
  } else {
    route({rank, mesh_.rank(), RoutedMessage::Kind::kConnect});
  }
}

void ControlPlane::send_abort(const Status& why) {
  hurry();
  abort_ = AbortMessage{why.kind(), why.message()};
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    if (rank != mesh_.rank() && mesh_.is_connected(rank)) {
      append(rank, 0, *abort_);
    } else {
      drop_outgoing(rank);
    }
  }
}

bool ControlPlane::is_abort_sent() const {
  return std::all_of(open_.begin(), open_.end(), [this](int rank) {
    return peer(rank).outgoing.empty() || mesh_.control(rank).state() == ChannelState::kClosed;
  });
}

void ControlPlane::ask(int rank) {
  hurry();
  if (peer(rank).is_open) {
    append(rank, 0, PingMessage{});
  } else {
    route({rank, mesh_.rank(), RoutedMessage::Kind::kPing});
  }
}

void ControlPlane::route(const RoutedMessage& message) {
  const int next = peer(message.to).is_open ? message.to : departures_.next_to(message.to);
  if (next < 0 || !peer(next).is_open) return keep_unrouted(message);
  hurry();
  append(next, 0, message);
}

// There is no way now: it goes on when the next rank has connected. A question is asked again.
void ControlPlane::keep_unrouted(const RoutedMessage& message) {
  if (message.kind != RoutedMessage::Kind::kConnect) return;
  const bool is_kept = std::ranges::any_of(
      unrouted_, [&](const RoutedMessage& kept) { return kept.to == message.to && kept.from == message.from; });
  if (!is_kept) unrouted_.push_back(message);
}

void ControlPlane::route_kept() {
  for (const RoutedMessage& message : std::exchange(unrouted_, {})) {
    if (!departures_.has_left(message.to) && !departures_.has_left(message.from)) route(message);
  }
}

Urgency ControlPlane::take_urgency() { return std::exchange(urgency_, Urgency::kLazy); }

void ControlPlane::drop_outgoing(int rank) {
  peer(rank).outgoing.clear();
  peer(rank).n_sent = 0;
}

bool ControlPlane::send() {
  take_late_peers();
  spread();
  bool moved = false;
  std::erase_if(awaiting_send_, [&](int rank) {
    moved |= send(rank);
    return peer(rank).outgoing.empty();
  });
  return moved;
}

bool ControlPlane::send(int rank) {
  Peer& to = peer(rank);
  if (!to.is_open && !to.is_gone) return false;  // it is not connected yet
  const auto rest = std::span<const std::byte>(to.outgoing).subspan(to.n_sent);
  const std::size_t n = mesh_.control(rank).write_some(rest);
  to.n_sent += n;
  if (to.n_sent < to.outgoing.size()) hurry();  // the channel is full: the peer must read
  if (to.n_sent == to.outgoing.size() || to.is_gone) {
    to.outgoing.clear();
    to.n_sent = 0;
  } else if (to.n_sent > to.outgoing.size() / 2) {  // only then, so that erase() moves fewer bytes than were sent
    to.outgoing.erase(to.outgoing.begin(), to.outgoing.begin() + static_cast<std::ptrdiff_t>(to.n_sent));
    to.n_sent = 0;
  }
  return n > 0;
}

bool ControlPlane::has_unsent() const {
  return !awaiting_send_.empty() ||
         std::any_of(open_.begin(), open_.end(), [this](int rank) { return mesh_.control(rank).has_unsent(); });
}

// --- receiving

Result<bool> ControlPlane::receive(LaneMessages& lanes, TimePoint now) {
  take_late_peers();
  const std::vector<int>* const senders = mesh_.take_senders();
  bool moved = false;
  for (const int rank : senders == nullptr ? open_ : *senders) {
    Result<bool> received = receive(rank, lanes, now);
    if (!received.ok()) return received.status();
    moved |= received.value();
  }
  return moved;
}

Result<bool> ControlPlane::receive(int rank, LaneMessages& lanes, TimePoint now) {
  Peer& from = peer(rank);
  if (!from.is_open) return false;
  bool moved = false;
  while (const std::size_t n = mesh_.control(rank).read_some(read_)) {
    moved = true;
    from.last_message = now;
    from.is_silent = false;
    from.incoming.append(std::span(read_).first(n));
    while (auto envelope = from.incoming.next()) {
      if (!envelope->ok()) return Status::internal(envelope->status().message() + ", from " + peer_text(rank));
      if (Status status = handle(rank, std::move(*envelope).value(), lanes, now); !status.ok()) return status;
    }
  }
  return moved;
}

Status ControlPlane::handle(int rank, Envelope envelope, LaneMessages& lanes, TimePoint now) {
  Peer& from = peer(rank);
  Message& message = envelope.message;
  if (auto* bye = std::get_if<ByeMessage>(&message)) {
    from.awaits_ack = true;
    return learn({rank, std::move(bye->lanes)}, rank);
  }
  if (auto* news = std::get_if<DeparturesMessage>(&message)) return handle(rank, std::move(*news));
  if (std::holds_alternative<ByeAckMessage>(message)) {
    from.n_unacknowledged = std::max(from.n_unacknowledged - 1, 0);
    has_to_spread_ = true;
    return Status::ok_status();
  }
  if (std::holds_alternative<GoneMessage>(message)) {
    from.reads = from.awaits_ack = false;
    from.n_unacknowledged = 0;
    has_to_spread_ = true;
    return Status::ok_status();
  }
  if (const auto* abort = std::get_if<AbortMessage>(&message)) return {abort->kind, abort->text};
  if (const auto* routed = std::get_if<RoutedMessage>(&message)) return handle(*routed, now);
  if (std::holds_alternative<PingMessage>(message)) {
    hurry();
    post(rank, 0, PongMessage{});
    return Status::ok_status();
  }
  if (std::holds_alternative<PongMessage>(message)) return Status::ok_status();
  return lanes.on_message(rank, envelope.lane, std::move(message), now);
}

Status ControlPlane::handle(int rank, DeparturesMessage news) {
  for (DeparturesMessage::Departure& each : news.departures) {
    if (each.rank == mesh_.rank()) continue;
    if (Status status = learn({each.rank, std::move(each.lanes)}, rank); !status.ok()) return status;
  }
  hurry();
  append(rank, 0, ByeAckMessage{});
  return Status::ok_status();
}

Status ControlPlane::handle(const RoutedMessage& message, TimePoint now) {
  if (!is_rank(message.to) || !is_rank(message.from)) return Status::internal("a message is from or to no rank");
  if (message.to != mesh_.rank()) {
    route(message);
  } else if (message.kind == RoutedMessage::Kind::kPing) {
    route({message.from, mesh_.rank(), RoutedMessage::Kind::kPong});
  } else if (message.kind == RoutedMessage::Kind::kPong) {
    peer(message.from).last_message = now;
  } else if (message.from < mesh_.rank() && !departures_.has_left(message.from)) {
    mesh_.connect(message.from);
  }
  return Status::ok_status();
}

// Each end of a connection that was not there from the start first tells the other all departures that it knows: so
// both know who is above whom.
void ControlPlane::take_late_peers() {
  const std::vector<int>& late = mesh_.late_peers();
  for (; n_late_handled_ < late.size(); ++n_late_handled_) {
    const int rank = late[n_late_handled_];
    if (peer(rank).is_gone) continue;
    peer(rank).is_open = peer(rank).is_silent = true;
    open_.insert(std::upper_bound(open_.begin(), open_.end(), rank), rank);
    hurry();
    has_to_spread_ = true;
    std::vector<std::byte> held = std::exchange(peer(rank).outgoing, {});
    if (abort_) {
      append(rank, 0, *abort_);
      continue;
    }
    tell(rank, true);
    if (own_bye_) say_bye(rank);
    peer(rank).outgoing.insert(peer(rank).outgoing.end(), held.begin(), held.end());
  }
}

// --- departures

void ControlPlane::send_bye(std::vector<ByeMessage::LaneEnd> lanes) {
  own_bye_ = ByeMessage{std::move(lanes)};
  for (const int rank : open_) say_bye(rank);
  has_to_spread_ = true;
}

void ControlPlane::send_gone() {
  for (const int rank : open_) append(rank, 0, GoneMessage{});
  send();
}

void ControlPlane::say_bye(int rank) {
  if (!peer(rank).reads) return;
  hurry();
  append(rank, 0, *own_bye_);
  ++peer(rank).n_unacknowledged;
}

Status ControlPlane::learn(Departure departure, int from) {
  const bool are_all_ranks =
      is_rank(departure.rank) &&
      std::all_of(departure.lanes.begin(), departure.lanes.end(), [this](const ByeMessage::LaneEnd& end) {
        return end.first_leaver == -1 || is_rank(end.first_leaver);
      });
  if (!are_all_ranks) return Status::internal(peer_text(from) + " tells of a rank that is none");
  hurry();
  has_to_spread_ = true;
  const int rank = departure.rank;
  if (!departures_.note(std::move(departure))) return Status::ok_status();
  told_by_.push_back(from);
  if (peer(rank).is_open) return Status::ok_status();
  drop_outgoing(rank);
  mesh_.forget(rank);
  return Status::ok_status();
}

void ControlPlane::spread() {
  if (abort_ || !std::exchange(has_to_spread_, false)) return;
  const int above = departures_.above();
  for (const int rank : open_) {
    const bool is_below = departures_.is_below(rank) && !departures_.has_left(rank);
    if (rank == above || is_below || peer(rank).awaits_ack) tell(rank, false);
  }
  if (above >= 0 && !peer(above).is_open && !own_bye_) mesh_.connect(above);
  acknowledge();
  route_kept();
}

// Those that share memory with this rank do so with each other too, and have told each other.
void ControlPlane::tell(int rank, bool is_greeting) {
  Peer& to = peer(rank);
  const std::vector<Departure>& all = departures_.all();
  DeparturesMessage news;
  for (; to.n_told < all.size(); ++to.n_told) {
    const Departure& each = all[to.n_told];
    const bool is_known = each.rank == rank || told_by_[to.n_told] == rank ||
                          (mesh_.peer(rank).shares_memory && mesh_.peer(each.rank).shares_memory);
    if (!is_known) news.departures.push_back({each.rank, each.lanes});
  }
  if ((news.departures.empty() && !is_greeting) || !to.reads) return;
  hurry();
  append(rank, 0, news);
  ++to.n_unacknowledged;
}

// A lower rank that leaves may be above this one, which acknowledges its goodbye only when it can do without.
void ControlPlane::acknowledge() {
  const int above = departures_.above();
  const bool is_free = own_bye_ ? !is_needed_below() : above < 0 || peer(above).is_open;
  for (const int rank : open_) {
    if (!peer(rank).awaits_ack || (rank < mesh_.rank() && !is_free)) continue;
    peer(rank).awaits_ack = false;
    hurry();
    append(rank, 0, ByeAckMessage{});
  }
}

bool ControlPlane::is_needed_below() const {
  return std::any_of(open_.begin(), open_.end(),
                     [this](int rank) { return peer(rank).n_unacknowledged > 0 && departures_.is_below(rank); });
}

bool ControlPlane::is_bye_known() const {
  return std::all_of(open_.begin(), open_.end(), [this](int rank) { return peer(rank).n_unacknowledged == 0; });
}

// --- lost peers

Status ControlPlane::check_closed_peers() {
  const std::vector<int>& closed = mesh_.closed_peers();
  for (; n_closed_handled_ < closed.size(); ++n_closed_handled_) {
    const int rank = closed[n_closed_handled_];
    Peer& gone = peer(rank);
    gone.is_gone = true;
    gone.is_open = false;
    has_to_spread_ = true;
    std::erase(open_, rank);
    if (const std::string why = mesh_.why_closed(rank); !why.empty()) return Status::ranks_lost(peer_text(rank) + why);
    // One that was just connected may have left as it was: those that know it say which of the two it was.
    if (departures_.has_left(rank) || gone.is_silent) continue;
    return Status::ranks_lost(peer_text(rank) +
                              " is gone: its connection closed without a goodbye, so its process "
                              "ended or its host is cut off. Its own last output says why.");
  }
  return Status::ok_status();
}

}  // namespace ciranda
