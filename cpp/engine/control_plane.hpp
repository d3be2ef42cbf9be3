// ControlPlane: carries the agreement over the mesh: announcements to the coordinator, the response log to all; and
// notices who leaves, dies, or falls silent.
//
// One thread (the holder of the progress token). Decisions are the coordinator's and the participant's; this does I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "negotiate/codec.hpp"
#include "negotiate/coordinator.hpp"
#include "negotiate/participant.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// A rank that said goodbye: it took part in the log's entries before log_index, and will in no other.
struct Departure {
  int rank;
  std::uint64_t log_index;
};

class ControlPlane {
 public:
  static constexpr int kCoordinator = 0;

  // The mesh outlives this.
  ControlPlane(Mesh& mesh, const Config& config, const Logger& logger);

  void announce(const Request& request, Participant::Ticket ticket, bool is_duplicate, TimePoint now);
  // Somebody here waits and nothing may be held back.
  void say_waiting();
  void say_bye(std::uint64_t log_index);
  void say_abort(const Status& why);

  // Sends, receives, coordinates. Log entries that arrived are appended to `actions`. Returns whether anything moved.
  // Not ok: the circle is broken, and this is why.
  Result<bool> step(bool wire_is_idle, TimePoint now, std::vector<Participant::Action>& actions);

  // Of the ranks that left, the one that had done the least.
  const std::optional<Departure>& departure() const { return departure_; }
  // How many log entries have come.
  std::uint64_t n_logged() const { return n_logged_; }
  // Whether what was sent since the last call must be seen at once.
  Urgency take_urgency();
  // Whether any rank is known to wait. Only the coordinator knows of others.
  bool has_waiting_rank() const { return coordinator_ && coordinator_->has_waiting_rank(); }
  // Every peer that lives has answered say_bye.
  bool is_bye_known() const;
  // When step() should be called although nothing has arrived.
  std::optional<TimePoint> next_deadline() const;

  // "rank 2 (host node7, pid 4711)"
  std::string peer_text(int rank) const;

 private:
  struct Peer {
    std::vector<std::byte> outgoing;
    std::size_t n_sent = 0;
    FrameReader incoming;
    bool has_left = false;
    bool knows_bye = false;
    bool is_gone = false;
  };

  void post(int peer, const Message& message);
  void post_to_all(const Message& message);
  void flush_ready();
  bool send(int peer);
  Result<bool> receive(int peer, TimePoint now, std::vector<Participant::Action>& actions);
  Status handle(int peer, Message message, TimePoint now, std::vector<Participant::Action>& actions);
  Status to_coordinator(int peer, Message message, TimePoint now);
  Status apply(const LogMessage& log, std::vector<Participant::Action>& actions);
  Result<bool> coordinate(bool wire_is_idle, TimePoint now, std::vector<Participant::Action>& actions);
  Status check_closed_peers();
  Status watch_coordinator(TimePoint now);

  Mesh& mesh_;
  Logger logger_;
  std::vector<Peer> peers_;
  Participant participant_;
  std::unique_ptr<Coordinator> coordinator_;  // on its rank only
  ReadyMessage ready_;                        // announcements of this turn, to travel in one frame
  Urgency urgency_ = Urgency::kLazy;          // of what was sent since take_urgency
  std::uint64_t n_logged_ = 0;
  std::optional<Departure> departure_;
  std::size_t n_closed_handled_ = 0;
  std::chrono::nanoseconds silence_warning_;
  std::chrono::nanoseconds silence_shutdown_;
  TimePoint heard_from_coordinator_;
  TimePoint asked_coordinator_;
};

}  // namespace ciranda
