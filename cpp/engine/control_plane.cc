#include "engine/control_plane.hpp"

#include <array>
#include <chrono>
#include <utility>

namespace ciranda {
namespace {

std::chrono::nanoseconds seconds(double value) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(value));
}

CoordinatorOptions coordinator_options(const Mesh& mesh, const Config& config) {
  CoordinatorOptions options;
  options.size = mesh.size();
  for (int rank = 0; rank < mesh.size(); ++rank) options.hosts.push_back(mesh.peer(rank).host);
  options.fusion_threshold_bytes = static_cast<std::size_t>(config.fusion_threshold_bytes);
  options.cache_capacity = static_cast<std::size_t>(config.cache_capacity);
  options.learned_order = config.learned_order;
  options.stall_warning = seconds(config.stall_warning_seconds);
  options.stall_shutdown = seconds(config.stall_shutdown_seconds);
  return options;
}

}  // namespace

ControlPlane::ControlPlane(Mesh& mesh, const Config& config, const Logger& logger)
    : mesh_(mesh),
      logger_(logger),
      peers_(static_cast<std::size_t>(mesh.size())),
      participant_(mesh.rank()),
      silence_warning_(seconds(config.stall_warning_seconds)),
      silence_shutdown_(seconds(config.stall_shutdown_seconds)),
      heard_from_coordinator_(std::chrono::steady_clock::now()) {
  if (mesh.rank() == kCoordinator) coordinator_ = std::make_unique<Coordinator>(coordinator_options(mesh, config));
}

std::string ControlPlane::peer_text(int rank) const {
  const PeerInfo& peer = mesh_.peer(rank);
  return "rank " + std::to_string(rank) + " (host " + peer.host + ", pid " + std::to_string(peer.pid) + ")";
}

// --- saying

void ControlPlane::announce(const Request& request, Participant::Ticket ticket, bool is_duplicate, TimePoint now) {
  if (!participant_.has_pending()) heard_from_coordinator_ = now;  // silence counts from when there is a question
  if (!request.is_deferrable || is_duplicate) urgency_ = Urgency::kUrgent;
  Message message =
      is_duplicate ? participant_.submit_duplicate(request.name, ticket) : participant_.submit(request, ticket);
  if (auto* ready = std::get_if<ReadyMessage>(&message)) {
    ready_.items.push_back(ready->items.front());
    return;
  }
  flush_ready();  // the coordinator must see announcements in order
  post(kCoordinator, message);
}

void ControlPlane::flush_ready() {
  if (ready_.items.empty()) return;
  post(kCoordinator, std::exchange(ready_, {}));
}

void ControlPlane::say_waiting() {
  flush_ready();
  urgency_ = Urgency::kUrgent;
  post(kCoordinator, WaitingMessage{});
}

void ControlPlane::say_bye(std::uint64_t log_index) {
  flush_ready();
  post_to_all(ByeMessage{log_index});
}

void ControlPlane::say_abort(const Status& why) { post_to_all(AbortMessage{why.kind(), why.message()}); }

void ControlPlane::post(int peer, const Message& message) {
  if (peer == mesh_.rank()) {
    // The coordinator lives here: no frame is made. What it refuses would be our own bug, and shows as a lost answer.
    const Status status = to_coordinator(peer, message, std::chrono::steady_clock::now());
    if (!status.ok()) logger_.error(status.message());
    return;
  }
  append_frame(message, peers_[static_cast<std::size_t>(peer)].outgoing);
}

void ControlPlane::post_to_all(const Message& message) {
  urgency_ = Urgency::kUrgent;
  for (int peer = 0; peer < mesh_.size(); ++peer) {
    if (peer != mesh_.rank() && !peers_[static_cast<std::size_t>(peer)].is_gone) post(peer, message);
  }
}

Urgency ControlPlane::take_urgency() { return std::exchange(urgency_, Urgency::kLazy); }

// --- the turn

Result<bool> ControlPlane::step(bool wire_is_idle, TimePoint now, std::vector<Participant::Action>& actions) {
  bool moved = false;
  flush_ready();
  for (int peer = 0; peer < mesh_.size(); ++peer) {
    if (peer == mesh_.rank()) continue;
    Result<bool> received = receive(peer, now, actions);
    if (!received.ok()) return received.status();
    moved |= received.value();
  }
  if (Status status = check_closed_peers(); !status.ok()) return status;
  if (coordinator_) {
    Result<bool> coordinated = coordinate(wire_is_idle, now, actions);
    if (!coordinated.ok()) return coordinated.status();
    moved |= coordinated.value();
  } else if (Status status = watch_coordinator(now); !status.ok()) {
    return status;
  }
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
  if (to.n_sent < to.outgoing.size()) urgency_ = Urgency::kUrgent;  // the channel is full: the peer must read
  if (to.n_sent == to.outgoing.size() || to.is_gone) {
    to.outgoing.clear();
    to.n_sent = 0;
  }
  return n > 0;
}

Result<bool> ControlPlane::receive(int peer, TimePoint now, std::vector<Participant::Action>& actions) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  if (from.is_gone) return false;
  std::array<std::byte, 4096> buffer;
  bool moved = false;
  while (const std::size_t n = mesh_.control(peer).read_some(buffer)) {
    moved = true;
    from.incoming.append(std::span(buffer).first(n));
    while (auto message = from.incoming.next()) {
      if (!message->ok()) return Status::internal(message->status().message() + ", from " + peer_text(peer));
      if (Status status = handle(peer, std::move(*message).value(), now, actions); !status.ok()) return status;
    }
  }
  return moved;
}

Status ControlPlane::handle(int peer, Message message, TimePoint now, std::vector<Participant::Action>& actions) {
  if (peer == kCoordinator) heard_from_coordinator_ = now;
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  if (const auto* log = std::get_if<LogMessage>(&message)) {
    if (peer != kCoordinator) return Status::internal("a log entry came from " + peer_text(peer));
    return apply(*log, actions);
  }
  if (const auto* bye = std::get_if<ByeMessage>(&message)) {
    from.has_left = true;
    if (!departure_ || bye->log_index < departure_->log_index) departure_ = Departure{peer, bye->log_index};
    urgency_ = Urgency::kUrgent;
    post(peer, ByeAckMessage{});
    return Status::ok_status();
  }
  if (std::holds_alternative<ByeAckMessage>(message)) {
    from.knows_bye = true;
    return Status::ok_status();
  }
  if (const auto* abort = std::get_if<AbortMessage>(&message)) return {abort->kind, abort->text};
  if (std::holds_alternative<PingMessage>(message)) {
    urgency_ = Urgency::kUrgent;
    post(peer, PongMessage{});
    return Status::ok_status();
  }
  if (std::holds_alternative<PongMessage>(message)) return Status::ok_status();
  if (const auto* notice = std::get_if<NoticeMessage>(&message)) {
    logger_.warning(notice->text);
    return Status::ok_status();
  }
  return to_coordinator(peer, std::move(message), now);
}

Status ControlPlane::to_coordinator(int peer, Message message, TimePoint now) {
  if (!coordinator_)
    return Status::internal("an announcement of " + peer_text(peer) +
                            " came to a rank that does not "
                            "coordinate");
  if (auto* request = std::get_if<RequestMessage>(&message)) {
    return coordinator_->on_request(peer, std::move(*request), now);
  }
  if (const auto* ready = std::get_if<ReadyMessage>(&message)) return coordinator_->on_ready(peer, *ready, now);
  if (const auto* duplicate = std::get_if<DuplicateMessage>(&message)) {
    return coordinator_->on_duplicate(peer, *duplicate, now);
  }
  if (std::holds_alternative<WaitingMessage>(message)) coordinator_->on_waiting(peer);
  return Status::ok_status();
}

Status ControlPlane::apply(const LogMessage& log, std::vector<Participant::Action>& actions) {
  for (const LogEntry& entry : log.entries) {
    Result<Participant::Action> action = participant_.apply(entry);
    if (!action.ok()) return action.status();
    ++n_logged_;
    actions.push_back(std::move(action).value());
  }
  return Status::ok_status();
}

Result<bool> ControlPlane::coordinate(bool wire_is_idle, TimePoint now, std::vector<Participant::Action>& actions) {
  if (const auto due = coordinator_->next_stall_check(); due && now >= *due) {
    for (const auto& report : coordinator_->check_stalls(now)) logger_.warning(report.text);
  }
  LogMessage log{coordinator_->take_entries(wire_is_idle)};
  if (log.entries.empty()) return false;
  urgency_ = Urgency::kUrgent;
  if (mesh_.size() > 1) {
    std::vector<std::byte> frame;
    append_frame(log, frame);
    for (int peer = 0; peer < mesh_.size(); ++peer) {
      Peer& to = peers_[static_cast<std::size_t>(peer)];
      if (peer != mesh_.rank() && !to.is_gone) to.outgoing.insert(to.outgoing.end(), frame.begin(), frame.end());
    }
  }
  if (Status status = apply(log, actions); !status.ok()) return status;
  return true;
}

// --- who is there

Status ControlPlane::check_closed_peers() {
  const std::vector<int>& closed = mesh_.closed_peers();
  for (; n_closed_handled_ < closed.size(); ++n_closed_handled_) {
    const int peer = closed[n_closed_handled_];
    Peer& gone = peers_[static_cast<std::size_t>(peer)];
    gone.is_gone = true;
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

// A coordinator that is stopped cannot report itself: whoever has waited for it asks whether it lives.
Status ControlPlane::watch_coordinator(TimePoint now) {
  if (!participant_.has_pending() || silence_warning_.count() == 0) return Status::ok_status();
  const auto silence = now - heard_from_coordinator_;
  if (silence < silence_warning_ || now - asked_coordinator_ < silence_warning_) return Status::ok_status();
  if (asked_coordinator_ > heard_from_coordinator_) {
    const double waited = std::chrono::duration<double>(silence).count();
    const std::string text = peer_text(kCoordinator) + ", which coordinates, has not answered for " +
                             std::to_string(static_cast<int>(waited)) + " s: it is stopped, or cut off.";
    if (silence_shutdown_.count() > 0 && silence >= silence_shutdown_) return Status::timeout(text);
    logger_.warning(text);
  }
  asked_coordinator_ = now;
  urgency_ = Urgency::kUrgent;
  post(kCoordinator, PingMessage{});
  return Status::ok_status();
}

std::optional<TimePoint> ControlPlane::next_deadline() const {
  if (coordinator_) return coordinator_->next_stall_check();
  if (!participant_.has_pending() || silence_warning_.count() == 0) return std::nullopt;
  return std::max(heard_from_coordinator_, asked_coordinator_) + silence_warning_;
}

}  // namespace ciranda
