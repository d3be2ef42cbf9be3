#include <algorithm>
#include <array>
#include <vector>

#include "collective/aligned_blocks.hpp"
#include "collective/launch.hpp"
#include "collective/pair_transfers.hpp"
#include "kernels/bfloat16_wire.hpp"

namespace ciranda {
namespace {

// Processes the plan segment by segment, and each segment level by level. Two ranks exchange data at one level only, so
// their queues have the same order even if one of them is ahead.
class Doubling final : public RunningCollective {
 public:
  explicit Doubling(const Launch& launch)
      : plan_(launch.plan),
        in_parts_(plan_),
        rounding_(launch.rounding),
        transfers_(launch.mesh),
        segment_bytes_(std::min(launch.segment_bytes, plan_.n_bytes)) {
    const int rank = launch.mesh.rank();
    const AlignedBlocks blocks{launch.mesh.size()};
    for (int level = 0; level < blocks.n_levels(); ++level) {
      if (blocks.sibling(level, rank).size() == 0) continue;
      levels_.push_back(
          {level, blocks.source(level, rank), blocks.targets(level, rank), AlignedBlocks::is_left(level, rank)});
    }
    std::byte* memory = launch.scratch.take(2 * levels_.size() * segment_bytes_).data();
    for (Level& level : levels_) {
      level.own = {memory, segment_bytes_};
      level.theirs = {memory + segment_bytes_, segment_bytes_};
      memory += 2 * segment_bytes_;
    }
    begin_segment(0);
  }

  Progress step() override {
    bool moved = transfers_.step();
    while (level_ < levels_.size() && transfers_.n_received(levels_[level_].source) == n_segments_) {
      combine();
      moved = true;
    }
    if (level_ == levels_.size() && transfers_.is_idle()) {
      if (offset_ + n_bytes_ == plan_.n_bytes) return Progress::kDone;
      begin_segment(offset_ + n_bytes_);
      moved = true;
    }
    return moved ? Progress::kMoved : Progress::kStuck;
  }

  std::vector<int> awaited() const override { return transfers_.awaited(); }

 private:
  struct Level {
    int number;
    int source;
    std::vector<int> targets;
    bool is_left;                      // this rank's block is the left one of the two
    std::span<std::byte> own = {};     // the partial result of this rank's block
    std::span<std::byte> theirs = {};  // that of the neighbouring block
    InputPieces own_pieces = {};
    OutputPieces their_pieces = {};
  };

  // Copies the input, because the output may be the same memory and is written before all have received the input.
  void begin_segment(std::size_t offset) {
    offset_ = offset;
    n_bytes_ = std::min(segment_bytes_, plan_.n_bytes - offset);
    level_ = 0;
    ++n_segments_;
    const auto own = levels_.front().own.first(n_bytes_);
    gather(plan_.input, offset_, own);
    if (rounding_.is_of_inputs()) kernels::round_to_bfloat16(own);
    // If this rank skips the first level, its first partner has combined and so scaled inputs already.
    const std::array<const std::byte*, 1> input{own.data()};
    if (levels_.front().number > 0) kernels::reduce(in_parts_.of_part, input, own);
    exchange();
  }

  void exchange() {
    Level& level = levels_[level_];
    level.own_pieces = InputPieces(level.own.data(), n_bytes_);
    level.their_pieces = OutputPieces(level.theirs.data(), n_bytes_);
    for (const int target : level.targets) transfers_.send(target, level.own_pieces, 0, n_bytes_);
    transfers_.receive(level.source, level.their_pieces, 0, n_bytes_);
  }

  void combine() {
    const Level& level = levels_[level_++];
    const std::byte* left = (level.is_left ? level.own : level.theirs).data();
    const std::byte* right = (level.is_left ? level.theirs : level.own).data();
    if (level_ == levels_.size()) {
      const Reduction& whole = plan_;
      plan_.output.for_range(offset_, n_bytes_, [&](std::span<std::byte> part, std::size_t at) {
        kernels::reduce(level.number == 0 ? whole : in_parts_.of_all, std::array{left + at, right + at}, part);
        if (rounding_.is_on()) kernels::round_to_bfloat16(part);
      });
      return;
    }
    Reduction part = in_parts_.of_part;
    if (level.number > 0) part.prescale = 1.0;
    const auto both = levels_[level_].own.first(n_bytes_);
    kernels::reduce(part, std::array{left, right}, both);
    if (rounding_.is_on() && rounding_.n_together == 2 << level.number) kernels::round_to_bfloat16(both);
    exchange();
  }

  const Plan& plan_;
  InParts in_parts_;  // a part is the result of a block
  Rounding rounding_;
  PairTransfers transfers_;
  std::size_t segment_bytes_;
  std::vector<Level> levels_;
  // The current segment.
  std::size_t n_segments_ = 0;  // begun so far
  std::size_t offset_ = 0;
  std::size_t n_bytes_ = 0;
  std::size_t level_ = 0;
};

}  // namespace

std::unique_ptr<RunningCollective> direct_allreduce_doubling(const Launch& launch) {
  return std::make_unique<Doubling>(launch);
}

}  // namespace ciranda
