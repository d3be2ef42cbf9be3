// Mesh: everything one rank has for reaching the others, in one epoch.
//
// A mesh is built complete (membership/ builds real ones, a LoopbackFabric those of tests) and is
// then only used. It carries bytes and wake-ups, and knows which peers are gone; it understands none of what it
// carries.
//
// Threads: all methods are for the holder of the engine's progress lock, except kick() (any thread), and sleep()
// (the engine's background thread, which does not hold the lock meanwhile).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/host_costs.hpp"
#include "base/pair_costs.hpp"
#include "transport/arena.hpp"
#include "transport/channel.hpp"

namespace ciranda {

struct PeerInfo {
  int rank = 0;
  int pid = 0;
  std::string host;     // label for messages: "node7"
  std::string address;  // "10.0.0.7:4000", empty in process
  bool shares_memory = false;
  int n_cores = 0;                                // of its host; 0: not known
  std::optional<HostCosts> costs = std::nullopt;  // what it knows to have been measured there
  std::optional<PairCosts> pair = std::nullopt;   // what this rank has measured with it, as it joined
};

// How soon a sleeping peer must look at what was written for it.
enum class Urgency : std::uint8_t {
  kLazy,    // when it wakes for another reason, or somebody there waits: news that only matters together with others
  kUrgent,  // now
};

// What the sleeper wants.
enum class Sleeper : std::uint32_t {
  kIdle = 1,     // urgent news
  kAwaits = 2,   // lazy news too, because a thread waits for it
  kResting = 3,  // urgent news, but nothing is pending here: what a network brings may be seen some milliseconds later
};

// Whether news of this urgency is to wake whoever left this value at its doorbell (0: nobody sleeps).
constexpr bool wants(Urgency urgency, std::uint32_t doorbell) {
  return doorbell == static_cast<std::uint32_t>(Sleeper::kAwaits) || (doorbell != 0 && urgency == Urgency::kUrgent);
}

class Mesh {
 public:
  virtual ~Mesh() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const PeerInfo& peer(int rank) const = 0;  // any rank, this one too

  // REQUIRES: peer != rank(). Control carries the engine's frames, data the tensors: neither can hold up the other.
  virtual Channel& control(int peer) = 0;
  virtual Channel& data(int peer) = 0;

  // The memory shared by ALL ranks of the mesh; null when some rank is on another host or shared memory is not to be
  // had.
  virtual SharedArena* arena() = 0;

  // Cheap when nothing happened: notices arrived events and dead peers. May do a system call at most every few calls.
  virtual void poll_events() = 0;

  // Wakes every sleeping peer that may have something new to read (after channel writes or arena counter updates).
  // Lazy news wakes only peers whose sleeper awaits it; peers reached by a network wake in any case.
  virtual void notify(Urgency urgency = Urgency::kUrgent) = 0;

  // Sleep protocol of the background thread: arm(); look once more for work; if there is none sleep(); disarm().
  // What a peer writes after arm() wakes the sleeper. sleep() returns on any peer activity, on kick(), at the
  // deadline, or for no reason. After disarm(), while some thread looks at the mesh, peers do not wake it.
  virtual void arm(Sleeper sleeper = Sleeper::kAwaits) = 0;
  virtual void disarm() = 0;
  virtual void sleep(std::optional<std::chrono::nanoseconds> at_most) = 0;
  virtual void kick() = 0;

  // Ranks whose connection has closed so far, in the order noticed. Whether they had said goodbye is the engine's to
  // know.
  virtual const std::vector<int>& closed_peers() const = 0;

  // What ended the connection from this side, as it continues a sentence that names the peer; empty if nothing did.
  virtual std::string why_closed(int /*peer*/) const { return {}; }
};

inline bool shares_memory_with_all(const Mesh& mesh) {
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (rank != mesh.rank() && !mesh.peer(rank).shares_memory) return false;
  }
  return true;
}

}  // namespace ciranda
