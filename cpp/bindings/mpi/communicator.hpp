// Communicator: some ranks of the world in an order of their own, with a lane of their own, and the names of its calls.
//
// It outlives worlds: after shutdown() and init() the first call of its ranks forms its process set again.
//
// Threads: any. As in MPI, all ranks make the calls of one communicator in the same order.
//
// Called by calls.hpp, collectives.cc, communicators.cc, messages.cc and session.cc.
#pragma once

#include <ciranda/table.h>

#include <ciranda/native/context.hpp>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bindings/mpi/abi.hpp"

namespace ciranda::mpi {

// Where the engine executes a communicator's calls.
struct SetAndLane {
  std::uint32_t process_set = 0;
  std::uint32_t lane = 0;
};

// The parameters that must be equal on all ranks for a repeated call.
struct Signature {
  ciranda_collective collective;
  std::int64_t kind;  // the operator, the root or the tag
  ciranda_dtype dtype;
  std::int64_t count;
  std::pair<int, int> way = {-1, -1};  // of a message: sender, receiver
  bool is_split = false;
  auto operator<=>(const Signature&) const = default;
};

// The number of messages of one signature that may be pending at a time.
inline constexpr std::uint32_t kTurns = 8;

class Communicator {
 public:
  // `ranks[r]` is the rank in the world of rank r; this process is `rank`. A communicator of all ranks of the world
  // uses `lane`; any other uses the process set that its ranks form under number `nth`.
  Communicator(std::string name, std::vector<std::int32_t> ranks, int rank, std::uint32_t lane, std::uint32_t nth);
  // A communicator that could not be created: every call fails with `why_not`.
  explicit Communicator(std::string why_not) : broken_(std::move(why_not)) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  // Throws Failure if it could not be created.
  void check() const;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::string& name() const { return name_; }
  const std::vector<std::int32_t>& ranks() const { return ranks_; }
  // The position of rank r's part in the engine's gathered result, which is in the order of the world.
  const std::vector<std::size_t>& positions() const { return positions_; }
  bool in_order() const { return in_order_; }

  // Throws Failure unless `world` has all of these ranks, and this process is the same rank in it.
  void check(const native::Context& world) const;

  SetAndLane set_and_lane(const native::Context& world);

  // The name of a call. Calls of one signature share a name, so that the engine recognizes repeated calls. Signatures
  // are numbered in order of appearance, so that ranks that differ in one use the same name and get an error. Messages
  // of one signature, several of which may be pending, rotate through kTurns names.
  std::string name_of(const Signature& signature);
  // Forgets the number of a signature on which ranks have disagreed.
  void forget(const Signature& signature);

  // Returns the number of earlier splits of this communicator, and adds one. All its ranks make the same splits.
  std::uint32_t count_split();

 private:
  const std::string broken_;
  const std::string name_;
  const std::vector<std::int32_t> ranks_;
  const int rank_ = -1;
  const std::uint32_t lane_ = 0;
  const std::uint32_t nth_ = 0;
  std::vector<std::size_t> positions_;
  bool in_order_ = true;

  std::mutex mutex_;
  std::mutex forming_;
  ciranda_context* formed_in_ = nullptr;  // a reference to the world in which the set was formed
  std::uint32_t formed_ = 0;
  std::map<Signature, std::uint32_t> numbers_;
  std::map<std::pair<int, int>, std::uint32_t> next_numbers_;  // by sender and receiver
  std::map<Signature, std::uint32_t> turns_;                   // of messages
  std::uint32_t n_splits_ = 0;
};

// The communicator of a handle. Throws Failure if there is none, or it could not be created.
std::shared_ptr<Communicator> communicator_of(Comm handle);
Comm add_communicator(std::shared_ptr<Communicator> communicator);
// The world, once it is known, or the reason why there is none.
void add_world(int rank, int size);
void break_world(const std::string& why_not);
void remove_communicator(Comm handle);

}  // namespace ciranda::mpi
