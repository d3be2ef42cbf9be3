// Mesh: one rank's connections to all others, in one epoch.
//
// All ranks are in a mesh when it is built: membership/ builds real ones, a LoopbackFabric those of tests. It carries
// bytes and wake-ups, and knows which peers are gone. It does not interpret the bytes.
//
// Called by ProgressThreads, ProgressLoop, ControlPlane, LaneLog, RoundsByMessages, Engine, Lanes, Wake, LaneMux,
// LaneMesh and is_oversubscribed(), held by WorldParts; through LaneMesh by execute/, backend/, collective/ and the
// parts of Lane; by device_advice() and world_text.hpp; made by membership/; implemented by SocketMesh.
//
// Threads: one (the holder of the progress lock), except
// - rank(), size(), peer(), arena(), kick(): any;
// - sleep(): the background thread, without the lock; as the engine ends, the thread that ends it, with the lock;
// - the first arm(): the thread that makes ProgressThreads, without the lock, before there is another thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/host_costs.hpp"
#include "base/pair_costs.hpp"
#include "base/thread_annotations.hpp"
#include "transport/arena.hpp"
#include "transport/channel.hpp"
#include "transport/traffic.hpp"

namespace ciranda {

struct PeerInfo {
  int rank = 0;
  int pid = 0;
  std::string host;     // label for messages: "node7"
  std::string address;  // "10.0.0.7:4000", empty in process
  bool shares_memory = false;
  int n_cores = 0;                                // of its host; 0: not known
  std::optional<HostCosts> costs = std::nullopt;  // its host's measured costs, if it has them
  std::optional<PairCosts> pair = std::nullopt;   // measured by this rank with the peer at init()

  // "rank 1 (host node7, pid 4711)"
  std::string text() const {
    return "rank " + std::to_string(rank) + " (host " + host + ", pid " + std::to_string(pid) + ")";
  }
};

// When a sleeping peer must read the bytes written for it.
enum class Urgency : std::uint8_t {
  kLazy,    // when it wakes for another reason, or at once if a thread there waits; for news that is of no use before
            // later news
  kUrgent,  // at once
};

// Which news wakes a sleeping rank.
enum class Sleeper : std::uint32_t {
  kIdle = 1,     // urgent news
  kAwaits = 2,   // lazy news too, because a thread waits for it
  kResting = 3,  // urgent news, but nothing is pending here: bytes from a network may be read some milliseconds later
};

// True if news of this urgency must wake a rank whose doorbell has this value (0: the rank is awake).
constexpr bool wants(Urgency urgency, std::uint32_t doorbell) {
  return doorbell == static_cast<std::uint32_t>(Sleeper::kAwaits) || (doorbell != 0 && urgency == Urgency::kUrgent);
}

class Mesh {
 public:
  virtual ~Mesh() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const PeerInfo& peer(int rank) const = 0;  // of any rank, including this one

  // REQUIRES: peer != rank(). Control carries the engine's frames, data the tensors, so neither delays the other.
  virtual Channel& control(int peer) = 0;
  virtual Channel& data(int peer) = 0;

  // Whether the control channel reaches the peer, or has reached it. A channel that does not takes no bytes; one for
  // data asks for what it lacks, if it can.
  virtual bool is_connected(int /*peer*/) const { return true; }
  // Begins to connect to a lower rank, if there is no connection. A higher one connects by itself.
  virtual void connect(int /*peer*/) {}
  // The ranks that were connected after the mesh was made, in this order.
  virtual const std::vector<int>& late_peers() const {
    static const std::vector<int> kNone;
    return kNone;
  }
  // The peer, to which there is no connection, has left: it is in closed_peers() from now on.
  virtual void forget(int /*peer*/) {}

  // The ranks from which control bytes may have come since the last call of this function; null: any.
  virtual const std::vector<int>* take_senders() { return nullptr; }

  // The memory shared by ALL ranks of the mesh; null if some rank is on another host, or shared memory is not
  // available.
  virtual SharedArena* arena() = 0;

  // Ends this mesh's transfers, possibly in the middle: none of the bytes that data channels were given is read later.
  // The channels are not used again. Only meshes that share channels with others have something to end.
  virtual void abandon() {}

  // Takes in socket events, and detects dead peers. Cheap if nothing happened: at most every few calls make a system
  // call.
  virtual void poll_events() REQUIRES(progress_lock) = 0;

  // Wakes every sleeping peer that may have new data to read (after channel writes or arena counter updates). Lazy news
  // wakes only peers that sleep with Sleeper::kAwaits, and all peers that are reached by a network.
  virtual void notify(Urgency urgency = Urgency::kUrgent) = 0;

  // Sleep protocol of the background thread: arm(); check once more for work; if there is none, sleep(); disarm().
  // A peer that writes after arm() wakes the sleeper. sleep() returns on any peer activity, on kick(), at the deadline,
  // or spuriously. After disarm(), while some thread reads from the mesh, peers do not wake the sleeper.
  virtual void arm(Sleeper sleeper = Sleeper::kAwaits) REQUIRES(progress_lock) = 0;
  virtual void disarm() REQUIRES(progress_lock) = 0;
  virtual void sleep(std::optional<std::chrono::nanoseconds> at_most) = 0;
  virtual void kick() = 0;

  // The ranks whose connection has closed so far, in the order of detection. The engine knows which of them had
  // announced that they leave.
  virtual const std::vector<int>& closed_peers() const = 0;

  // What has gone to and from the peer so far. Two system calls for each connection.
  virtual Traffic traffic(int /*peer*/) const { return {}; }

  // Why this side closed the connection: the rest of a sentence that begins with the peer's name; empty if it did not.
  virtual std::string why_closed(int /*peer*/) const { return {}; }
};

inline bool shares_memory_with_all(const Mesh& mesh) {
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (rank != mesh.rank() && !mesh.peer(rank).shares_memory) return false;
  }
  return true;
}

}  // namespace ciranda
