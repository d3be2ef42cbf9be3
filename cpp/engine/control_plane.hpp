// ControlPlane: carries messages between ranks: frames them, sends and receives them; and notices who leaves, dies, or
// falls silent. What the messages of a lane mean is the lane's to know.
//
// One thread (the holder of the progress lock).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "agree/frames.hpp"
#include "base/status.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

using TimePoint = std::chrono::steady_clock::time_point;

// A rank that said goodbye: it took part in each lane's log up to what it said, and will in nothing else.
struct Departure {
  int rank;
  std::vector<ByeMessage::LaneEnd> lanes;
  std::uint64_t log_index(LaneId lane) const;
};

// Takes the messages that concern a lane.
class LaneMessages {
 public:
  virtual ~LaneMessages() = default;
  // Not ok: the world is broken, and this is why.
  virtual Status on_message(int peer, LaneId lane, Message message, TimePoint now) = 0;
};

class ControlPlane {
 public:
  // The mesh outlives this.
  explicit ControlPlane(Mesh& mesh) : mesh_(mesh), peers_(static_cast<std::size_t>(mesh.size())) {}

  // REQUIRES: peer is not this rank.
  void post(int peer, LaneId lane, const Message& message);
  void post_to_all(const Message& message);
  void say_bye(std::vector<ByeMessage::LaneEnd> lanes);
  void say_abort(const Status& why) { post_to_all(AbortMessage{why.kind(), why.message()}); }
  // Asks a peer whether it lives; any answer counts as heard.
  void ask(int peer);

  // Each returns whether anything moved; not ok: the world is broken, and this is why.
  Result<bool> receive(LaneMessages& lanes, TimePoint now);
  bool send();
  // Of all who ended, one who had not said goodbye, as an error.
  Status check_closed_peers();

  // Those that left, in the order heard of.
  const std::vector<Departure>& departures() const { return departures_; }
  TimePoint heard_from(int peer) const { return peers_[static_cast<std::size_t>(peer)].heard; }

  // What was sent since the last call must be seen at once.
  void hurry() { urgency_ = Urgency::kUrgent; }
  Urgency take_urgency();
  // Every peer that lives has answered say_bye.
  bool is_bye_known() const;
  // Something is still to be sent to a peer whose channel was full.
  bool has_unsent() const;
  bool is_gone(int peer) const { return peers_[static_cast<std::size_t>(peer)].is_gone; }

  // "rank 2 (host node7, pid 4711)"
  std::string peer_text(int rank) const;

 private:
  struct Peer {
    std::vector<std::byte> outgoing;
    std::size_t n_sent = 0;
    FrameReader incoming;
    TimePoint heard{};
    bool has_left = false;
    bool knows_bye = false;
    bool is_gone = false;
  };

  bool send(int peer);
  Result<bool> receive(int peer, LaneMessages& lanes, TimePoint now);
  Status handle(int peer, Envelope envelope, LaneMessages& lanes, TimePoint now);

  Mesh& mesh_;
  std::vector<Peer> peers_;
  Urgency urgency_ = Urgency::kLazy;  // of what was sent since take_urgency
  std::vector<Departure> departures_;
  std::size_t n_closed_handled_ = 0;
  // Where receive() reads to; with room for the largest input by default, so that it takes one call of the system.
  std::vector<std::byte> read_ = std::vector<std::byte>(128 << 10);
};

}  // namespace ciranda
