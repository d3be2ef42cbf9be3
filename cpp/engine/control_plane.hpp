// ControlPlane: frames, sends and receives the messages between ranks, and detects ranks that leave, die or stop
// answering. It passes a lane's messages to the lane without interpreting them.
//
// Called by ProgressLoop, which receives and sends, LaneLog, which posts, RoundsByMessages, Lane, Lanes,
// RoundsInMemory, AnswerWatch, Reports, LivenessProbe and StallDetector; held by WorldParts and LaneParts; one thread
// (the holder of the progress lock).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "agree/frames.hpp"
#include "base/status.hpp"
#include "base/thread_annotations.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

using TimePoint = std::chrono::steady_clock::time_point;

// A rank that said goodbye. It has executed each lane's log up to the index in its goodbye, and executes no more.
struct Departure {
  int rank;
  std::vector<ByeMessage::LaneEnd> lanes;
  std::uint64_t log_index(LaneId lane) const;
};

// Receives the messages of all lanes.
class LaneMessages {
 public:
  virtual ~LaneMessages() = default;
  // An error breaks the world.
  virtual Status on_message(int peer, LaneId lane, Message message, TimePoint now) REQUIRES(progress_lock) = 0;
};

class ControlPlane {
 public:
  // The mesh outlives this.
  explicit ControlPlane(Mesh& mesh) : mesh_(mesh), peers_(static_cast<std::size_t>(mesh.size())) {}

  // REQUIRES: peer is not this rank.
  void post(int peer, LaneId lane, const Message& message);
  void send_bye(std::vector<ByeMessage::LaneEnd> lanes);
  // Sends the error to all peers, even to one that counts as lost because of what it sent.
  void send_abort(const Status& why);
  // Sends a liveness probe. Any message from the peer counts as an answer.
  void ask(int peer);

  // receive() and send() return whether any bytes moved. An error breaks the world.
  Result<bool> receive(LaneMessages& lanes, TimePoint now) REQUIRES(progress_lock);
  bool send();
  // Returns RanksLost if a peer's connection has closed without a goodbye.
  Status check_closed_peers();

  // The ranks that have left, in the order in which their goodbyes arrived.
  const std::vector<Departure>& departures() const { return departures_; }
  TimePoint last_message_from(int peer) const { return peers_[static_cast<std::size_t>(peer)].last_message; }

  // The peers must at once read the messages posted since the last take_urgency().
  void hurry() { urgency_ = Urgency::kUrgent; }
  Urgency take_urgency();
  // Every live peer has answered send_bye(), or has left itself.
  bool is_bye_known() const;
  // Some messages have not been sent yet, for instance because a peer's channel was full.
  bool has_unsent() const;
  bool is_gone(int peer) const { return peers_[static_cast<std::size_t>(peer)].is_gone; }

  // "rank 2 (host node7, pid 4711)"
  std::string peer_text(int rank) const;
  std::string own_text() const;

 private:
  struct Peer {
    std::vector<std::byte> outgoing;
    std::size_t n_sent = 0;
    FrameReader incoming;
    TimePoint last_message{};
    bool has_left = false;
    bool knows_bye = false;
    bool is_gone = false;
  };

  void post_to_all(const Message& message, bool also_gone);
  bool send(int peer);
  Result<bool> receive(int peer, LaneMessages& lanes, TimePoint now) REQUIRES(progress_lock);
  Status handle(int peer, Envelope envelope, LaneMessages& lanes, TimePoint now) REQUIRES(progress_lock);

  Mesh& mesh_;
  std::vector<Peer> peers_;
  Urgency urgency_ = Urgency::kLazy;  // of the messages posted since take_urgency()
  std::vector<Departure> departures_;
  std::size_t n_closed_handled_ = 0;
  // receive() reads into this. It has room for the largest default input, so that one system call reads it.
  std::vector<std::byte> read_ = std::vector<std::byte>(128 << 10);
};

}  // namespace ciranda
