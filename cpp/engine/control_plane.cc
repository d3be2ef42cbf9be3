#include "engine/control_plane.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {

std::uint64_t Departure::log_index(LaneId lane) const {
  for (const ByeMessage::LaneEnd& end : lanes) {
    if (end.lane == lane) return end.log_index;
  }
  return 0;
}

std::string ControlPlane::peer_text(int rank) const { return mesh_.peer(rank).text(); }

std::string ControlPlane::own_text() const { return peer_text(mesh_.rank()); }

// --- sending

void ControlPlane::post(int peer, LaneId lane, const Message& message) {
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  if (!to.is_gone) append_frame(lane, message, to.outgoing);
}

void ControlPlane::post_to_all(const Message& message, bool also_gone) {
  hurry();
  for (int peer = 0; peer < mesh_.size(); ++peer) {
    Peer& to = peers_[static_cast<std::size_t>(peer)];
    if (peer != mesh_.rank() && (also_gone || !to.is_gone)) append_frame(0, message, to.outgoing);
  }
}

void ControlPlane::send_bye(std::vector<ByeMessage::LaneEnd> lanes) {
  post_to_all(ByeMessage{std::move(lanes)}, false);
}

void ControlPlane::send_abort(const Status& why) { post_to_all(AbortMessage{why.kind(), why.message()}, true); }

void ControlPlane::ask(int peer) {
  hurry();
  post(peer, 0, PingMessage{});
}

Urgency ControlPlane::take_urgency() { return std::exchange(urgency_, Urgency::kLazy); }

bool ControlPlane::send() {
  bool moved = false;
  for (int peer = 0; peer < mesh_.size(); ++peer) {
    if (peer != mesh_.rank()) moved |= send(peer);
  }
  return moved;
}

bool ControlPlane::send(int peer) {
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  if (to.outgoing.empty()) return false;
  const auto rest = std::span<const std::byte>(to.outgoing).subspan(to.n_sent);
  const std::size_t n = mesh_.control(peer).write_some(rest);
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
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    const bool is_open = rank != mesh_.rank() && !peer.is_gone;
    if (!peer.outgoing.empty() || (is_open && mesh_.control(rank).has_unsent())) return true;
  }
  return false;
}

// --- receiving

Result<bool> ControlPlane::receive(LaneMessages& lanes, TimePoint now) {
  bool moved = false;
  for (int peer = 0; peer < mesh_.size(); ++peer) {
    if (peer == mesh_.rank()) continue;
    Result<bool> received = receive(peer, lanes, now);
    if (!received.ok()) return received.status();
    moved |= received.value();
  }
  return moved;
}

Result<bool> ControlPlane::receive(int peer, LaneMessages& lanes, TimePoint now) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  if (from.is_gone) return false;
  bool moved = false;
  while (const std::size_t n = mesh_.control(peer).read_some(read_)) {
    moved = true;
    from.last_message = now;
    from.incoming.append(std::span(read_).first(n));
    while (auto envelope = from.incoming.next()) {
      if (!envelope->ok()) return Status::internal(envelope->status().message() + ", from " + peer_text(peer));
      if (Status status = handle(peer, std::move(*envelope).value(), lanes, now); !status.ok()) return status;
    }
  }
  return moved;
}

Status ControlPlane::handle(int peer, Envelope envelope, LaneMessages& lanes, TimePoint now) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  Message& message = envelope.message;
  if (auto* bye = std::get_if<ByeMessage>(&message)) {
    from.has_left = true;
    departures_.push_back({peer, std::move(bye->lanes)});
    hurry();
    post(peer, 0, ByeAckMessage{});
    return Status::ok_status();
  }
  if (std::holds_alternative<ByeAckMessage>(message)) {
    from.knows_bye = true;
    return Status::ok_status();
  }
  if (const auto* abort = std::get_if<AbortMessage>(&message)) return {abort->kind, abort->text};
  if (std::holds_alternative<PingMessage>(message)) {
    hurry();
    post(peer, 0, PongMessage{});
    return Status::ok_status();
  }
  if (std::holds_alternative<PongMessage>(message)) return Status::ok_status();
  return lanes.on_message(peer, envelope.lane, std::move(message), now);
}

// --- lost and departed peers

Status ControlPlane::check_closed_peers() {
  const std::vector<int>& closed = mesh_.closed_peers();
  for (; n_closed_handled_ < closed.size(); ++n_closed_handled_) {
    const int peer = closed[n_closed_handled_];
    Peer& gone = peers_[static_cast<std::size_t>(peer)];
    gone.is_gone = true;
    if (const std::string why = mesh_.why_closed(peer); !why.empty()) return Status::ranks_lost(peer_text(peer) + why);
    if (!gone.has_left) {
      return Status::ranks_lost(peer_text(peer) +
                                " is gone: its connection closed without a goodbye, so its process "
                                "ended or its host is cut off. Its own last output says why.");
    }
  }
  return Status::ok_status();
}

bool ControlPlane::is_bye_known() const {
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    const bool needs_none = peer.is_gone || peer.has_left;
    if (rank != mesh_.rank() && !needs_none && !peer.knows_bye) return false;
  }
  return true;
}

}  // namespace ciranda
