// ControlPlane: frames, sends and receives the messages between ranks, and detects ranks that leave, die or stop
// answering. It passes a lane's messages to the lane without interpreting them.
//
// Not all pairs of ranks are connected. The connections of a tree of all ranks (Departures) are there from the start;
// others are made when there is a message for them. A goodbye goes to all who are connected with the rank that leaves,
// and on over the tree; each rank below it connects to another above it, and only then acknowledges the goodbye. A rank
// that leaves itself needs nobody above it once those below it have acknowledged its own goodbye. An error goes to all
// who are connected, and each passes it on: every part into which losses cut the tree has a rank that sees a loss.
//
// Called by ProgressLoop, which receives and sends, LaneLog, which posts, RoundsByMessages, Lane, Lanes,
// RoundsInMemory, AnswerWatch, Reports, LivenessProbe and StallDetector; held by WorldParts and LaneParts; one thread
// (the holder of the progress lock).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agree/frames.hpp"
#include "base/status.hpp"
#include "base/thread_annotations.hpp"
#include "engine/departures.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

using TimePoint = std::chrono::steady_clock::time_point;

// Receives the messages of all lanes.
class LaneMessages {
 public:
  virtual ~LaneMessages() = default;
  // An error breaks the world.
  virtual Status on_message(int peer, LaneId lane, Message message, TimePoint now) REQUIRES(progress_lock) = 0;
};

class ControlPlane {
 public:
  // The mesh outlives this. `uses_relays`: as the world's first lane.
  ControlPlane(Mesh& mesh, bool uses_relays);

  // REQUIRES: peer is not this rank.
  void post(int peer, LaneId lane, const Message& message);
  void send_bye(std::vector<ByeMessage::LaneEnd> lanes);
  // This rank will receive nothing more.
  void send_gone();
  // Sends the error to all who are connected, even to one that counts as lost because of what it sent, and to all that
  // connect from now on.
  void send_abort(const Status& why);
  bool is_abort_sent() const;
  // Sends a liveness probe. Any message from the peer counts as an answer.
  void ask(int peer);

  // receive() and send() return whether any bytes moved. An error breaks the world.
  Result<bool> receive(LaneMessages& lanes, TimePoint now) REQUIRES(progress_lock);
  bool send();
  // Returns RanksLost if a peer's connection has closed without a goodbye.
  Status check_closed_peers();

  // The ranks that have left, in the order in which this rank heard of it.
  const std::vector<Departure>& departures() const { return departures_.all(); }
  TimePoint last_message_from(int peer) const { return peers_[static_cast<std::size_t>(peer)].last_message; }

  // The peers must at once read the messages posted since the last take_urgency().
  void hurry() { urgency_ = Urgency::kUrgent; }
  Urgency take_urgency();
  // Everyone who is connected has answered send_bye(): this rank is no longer needed.
  bool is_bye_known() const;
  // Some messages have not been sent yet, for instance because a peer's channel was full.
  bool has_unsent() const;
  // The other ranks whose connections are open, ascending.
  const std::vector<int>& open_peers() const { return open_; }

  // "rank 2 (host node7, pid 4711)"
  std::string peer_text(int rank) const;
  std::string own_text() const;

 private:
  struct Peer {
    std::vector<std::byte> outgoing;
    std::size_t n_sent = 0;
    FrameReader incoming;
    TimePoint last_message{};
    bool is_open = false;      // connected, and not gone
    bool is_gone = false;      // its connection has closed
    bool is_silent = false;    // connected late, and has sent nothing yet
    std::size_t n_told = 0;    // of the departures
    bool reads = true;         // it has not said that it reads nothing more
    int n_unacknowledged = 0;  // messages to it that tell of departures
    bool awaits_ack = false;   // of its own goodbye
  };

  void append(int peer, LaneId lane, const Message& message);
  void drop_outgoing(int peer);
  bool send(int peer);
  Result<bool> receive(int peer, LaneMessages& lanes, TimePoint now) REQUIRES(progress_lock);
  Status handle(int peer, Envelope envelope, LaneMessages& lanes, TimePoint now) REQUIRES(progress_lock);
  Status handle(int peer, DeparturesMessage news);
  Status handle(const RoutedMessage& message, TimePoint now);
  void route(const RoutedMessage& message);
  void keep_unrouted(const RoutedMessage& message);
  void route_kept();
  void take_late_peers();
  Status learn(Departure departure, int from);
  void spread();
  void tell(int peer, bool is_greeting);
  void say_bye(int peer);
  void acknowledge();
  bool is_needed_below() const;

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  bool is_rank(std::int32_t rank) const { return rank >= 0 && rank < mesh_.size(); }

  Mesh& mesh_;
  std::vector<Peer> peers_;
  std::vector<int> open_;
  std::vector<int> awaiting_send_;    // the peers for which there are outgoing bytes
  Urgency urgency_ = Urgency::kLazy;  // of the messages posted since take_urgency()
  Departures departures_;
  std::vector<int> told_by_;             // of each departure
  bool has_to_spread_ = false;           // something has changed that spread() depends on
  std::vector<RoutedMessage> unrouted_;  // for which there was no way
  std::optional<ByeMessage> own_bye_;
  std::optional<AbortMessage> abort_;
  std::size_t n_closed_handled_ = 0;
  std::size_t n_late_handled_ = 0;
  // receive() reads into this. It has room for the largest default input, so that one system call reads it.
  std::vector<std::byte> read_ = std::vector<std::byte>(128 << 10);
};

}  // namespace ciranda
