// PeerCollective: what all collectives in the memory of GPUs have in common. A plan is executed in chunks, of which two
// are under way, and a chunk stage after stage, of which each rank has some:
//
//   pack      the input into this rank's slot
//   reduce    from the slots of all ranks, in rank order
//   unpack    from slots or rooms to the output
//
// The host launches a stage when it has heard that the ranks whose memory the stage reads have ended theirs, so no
// kernel waits for another rank. Counters are those of algorithms in shared memory (ArenaSession): a slot is packed
// again when all have consumed what was in it two chunks before. Chunks follow each other: one begins and ends a stage
// after the one before it has. While one waits for other ranks, or the host for its event, the GPU has the other.
//
// The plan is done when its results are there.
//
// Called by PeerBackend, through PeerReduction, PeerScan, PeerBroadcast, PeerExchange and PeerReducescatter, which
// implement it; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/copies.hpp"
#include "backend/cuda/peer_group.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"

namespace ciranda::cuda {

// A stage of a chunk, on one rank.
struct PeerStage {
  enum class Does : std::uint8_t { kPack, kReduce, kUnpack };
  using Counter = ArenaSession::Counter;
  static constexpr int kAll = -1;

  Does does;
  std::optional<Counter> awaits = {};     // what members publish before it begins; none: its slot must be free
  int of = kAll;                          // the member that it awaits
  std::optional<Counter> publishes = {};  // when it has ended. After the chunk's last stage that is kConsumed, too
};

class PeerCollective : public RunningCollective {
 public:
  Progress step() final;
  std::vector<int> awaited() const final;
  Status status() const final { return status_; }
  std::string awaited_device() const final;

 protected:
  using Stage = PeerStage;
  using Does = PeerStage::Does;
  using Counter = PeerStage::Counter;
  static constexpr Stage kPack{.does = Does::kPack, .publishes = Counter::kPacked};

  // The group and the plan outlive this. `most_bytes`: of plan.n_bytes, in a chunk. REQUIRES: the group is usable;
  // plan.n_bytes > 0.
  PeerCollective(PeerGroup& group, const Plan& plan, std::size_t most_bytes);

  // Of a chunk, on this rank; at least one. Kept while it is under way.
  virtual std::span<const Stage> stages() const = 0;
  virtual PeerStream::Work work(Does what) const = 0;

  // --- for these two
  const Plan& plan() const { return plan_; }
  int n_members() const { return group_.session.n_members(); }
  int self() const { return group_.session.member(); }
  std::size_t slot_bytes() const { return group_.slot_bytes; }
  // The chunk's range of the plan's bytes.
  std::size_t offset() const { return chunk_->offset; }
  std::size_t n_bytes() const { return chunk_->n_bytes; }
  // How many bytes of it a part of the plan has that is n_bytes long.
  std::size_t n_bytes_of(std::size_t n_bytes) const;
  std::byte* slot(int member) const;
  std::byte* room(int member) const;
  // How long a share is if a slot has one for each member.
  static std::size_t share_bytes(const PeerGroup& group);
  // That for `receiver`. REQUIRES: most_bytes is share_bytes().
  std::byte* share_of_slot(int member, int receiver) const;

  // From this rank's tensors to its slot: the part for a member.
  void add_share(Copies& to, int receiver) const;
  static PeerStream::Work copy(Copies copies);
  // The plan's input to this rank's slot.
  PeerStream::Work pack_input() const;
  // Reduces one input of each of some members, over whose number an average is, then copies.
  PeerStream::Work reduce(const std::vector<const std::byte*>& inputs, std::byte* to, std::size_t n_bytes,
                          Copies copies = {}) const;
  // The same, to a range of the output. What is not in one piece there goes by this rank's room.
  PeerStream::Work reduce_to_output(const std::vector<const std::byte*>& inputs, std::size_t offset,
                                    std::size_t n_bytes) const;

 private:
  struct Chunk {
    std::uint64_t number = 0;
    std::size_t offset = 0;
    std::size_t n_bytes = 0;
    std::span<const Stage> stages = {};
    std::size_t n_ended = 0;  // of its stages
    bool is_running = false;  // the next one, on the GPU

    const Stage& stage() const { return stages[n_ended]; }
    bool has_ended() const { return n_ended == stages.size(); }
    bool has_ended(std::size_t stage) const { return n_ended > stage || has_ended(); }
    bool has_begun(std::size_t stage) const { return has_ended(stage) || (n_ended == stage && is_running); }
  };

  void add_chunks();
  // Returns whether the chunk has moved. `before`: the chunk before it, or null if that is consumed.
  bool advance(Chunk& chunk, const Chunk* before);
  bool may_begin(const Chunk& chunk) const;
  void begin(Chunk& chunk);
  bool end(Chunk& chunk);

  PeerGroup& group_;
  const Plan& plan_;
  const std::size_t most_bytes_;
  std::size_t n_bytes_begun_ = 0;  // of the plan, in chunks until now
  std::deque<Chunk> chunks_;       // under way
  const Chunk* chunk_ = nullptr;   // that of which stages() and work() are asked
  Status status_;
};

}  // namespace ciranda::cuda
