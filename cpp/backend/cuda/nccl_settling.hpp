// NcclSettling: the members of a lane tell each other of their GPUs and their NCCL, and make a communicator of it, or
// use that of another lane with the same ranks. If one cannot, all know, and none uses it. The lowest member with a
// reason knows that it has to say so.
//
// What members tell, and the communicator's id, travel by the lane's channels, as ranks may be on several hosts.
//
// Called by NcclBackend; one thread (the holder of the progress lock).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/nccl_group.hpp"
#include "base/place.hpp"
#include "collective/pair_transfers.hpp"
#include "collective/running_collective.hpp"
#include "fuse/piece_list.hpp"

namespace ciranda::cuda {

class NcclSettling final : public RunningCollective {
 public:
  struct Options {
    std::string nccl;                    // what CIRANDA_NCCL says
    bool may_leave_the_host;             // or else CIRANDA_WIRE asks for what NCCL does not do between hosts
    std::chrono::duration<double> most;  // that the communicator may take
  };

  NcclSettling(std::shared_ptr<NcclGroup> group, const Place& place, Options options);

  Progress step() override;
  std::vector<int> awaited() const override;
  std::string awaited_device() const override;

 private:
  enum class Phase : std::uint8_t { kPrepare, kPreparing, kTelling, kMaking, kEnding };
  struct Offer {
    std::uint8_t can_use;
    int version;
    CUuuid gpu;
    ncclUniqueId id;     // of rank 0, for a new communicator
    ncclUniqueId known;  // of the one that this rank could share; empty: none
  };
  struct Prepared;

  // Sends `sent` to all other members.
  template <typename Told>
  void exchange(const Told& sent, std::vector<Told>& told);
  // Whether NCCL has no work in this world on the GPU.
  bool is_idle() const;
  void prepare();
  // Why this member must not use NCCL, whatever NCCL it has.
  Status objection() const;
  void tell();
  // Whether all could share the same one.
  bool can_share() const;
  void make();
  void conclude(const std::vector<std::uint8_t>& can);
  // Why no communicator is made, as all members see it; ok: one is.
  Status refusal() const;

  const std::shared_ptr<NcclGroup> shared_group_;  // also the jobs' that fill it in
  NcclGroup& group_;
  const Place place_;
  const Options options_;
  const std::shared_ptr<Prepared> prepared_;
  const NcclShared::Key key_;
  Phase phase_ = Phase::kPrepare;
  Status own_;  // why this member cannot
  std::vector<Offer> offers_;
  std::vector<std::uint8_t> made_;
  InputPieces sent_;
  std::vector<OutputPieces> received_;
  std::optional<PairTransfers> transfers_;
};

}  // namespace ciranda::cuda
