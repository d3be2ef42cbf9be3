// RegionPieces: for one allreduce, the tensors of every member that lie in memory which the others have mapped
// (SharedRegions), so that they need not be packed.
//
// Before a member publishes kPacked for the first chunk, it writes the ranges of its memory to its table, or that the
// memory is not mapped by others. When all have published, each reads the tables of the others. Small pieces of the
// same call that are not in regions are copied to the member's stage, and their results back. A member writes its table
// and stage again only when its next allreduce of this kind begins. By then no other member reads them, because the
// member waits until all have reduced their slices. Called by shm_allreduce_two_shot.cc; one thread (the holder of the
// progress lock).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "collective/arena_session.hpp"
#include "fuse/plan.hpp"

namespace ciranda {

class RegionPieces {
 public:
  RegionPieces(const ArenaSession& session, const Plan& plan)
      : session_(session),
        plan_(plan),
        is_applicable_(applies_to(plan, session.n_members())),
        by_member_(static_cast<std::size_t>(session.n_members())) {
    if (is_applicable_) is_own_shared_ = write_own();
  }

  // This rank's input is in memory that the others have mapped, and need not be packed.
  bool is_own_shared() const { return is_own_shared_; }

  // REQUIRES: all have published kPacked for the first chunk.
  void read() {
    if (!is_applicable_) return;
    for (int member = 0; member < session_.n_members(); ++member) {
      if (member == session_.member()) {
        if (is_own_shared_) read_own();
      } else {
        read(member);
      }
    }
    n_shared_ = static_cast<int>(
        std::count_if(by_member_.begin(), by_member_.end(), [](const auto& pieces) { return pieces.n_bytes() > 0; }));
  }

  bool are_all_shared() const { return n_shared_ == session_.n_members(); }

  // The member's memory at `offset`; null if the others have not mapped it.
  std::byte* at(int member, std::size_t offset) const {
    const OutputPieces& pieces = by_member_[index(member)];
    return pieces.n_bytes() > 0 ? pieces.at(offset).data() : nullptr;
  }

  // How many of n_bytes from `offset` lie in one piece at every member whose memory is mapped.
  std::size_t in_one_piece(std::size_t offset, std::size_t n_bytes) const {
    if (n_shared_ == 0) return n_bytes;
    for (const OutputPieces& pieces : by_member_) {
      if (pieces.n_bytes() > 0) n_bytes = std::min(n_bytes, pieces.at(offset).size());
    }
    return n_bytes;
  }

  // Copies the results of staged pieces to the output. REQUIRES: all have reduced their slices in place.
  void finish() const {
    const auto outputs = plan_.output.pieces();
    const auto ranges = session_.arena().ranges(session_.member()).first(outputs.size());
    std::size_t n_staged = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (ranges[i].region != RegionRange::kStaged) continue;
      std::memcpy(outputs[i].data(), own_stage(ranges[i]).data(), outputs[i].size());
      n_staged += outputs[i].size();
    }
    session_.arena().regions().count_in_place(plan_.n_bytes - n_staged);
  }

 private:
  // The same on all ranks.
  static bool applies_to(const Plan& plan, int n_members) {
    const auto is_everybody = [n_members](const std::vector<int>& ranks) {
      return ranks.empty() || ranks.size() == static_cast<std::size_t>(n_members);
    };
    return plan.collective == Collective::kAllreduce && is_everybody(plan.contributors) && is_everybody(plan.receivers);
  }

  bool write_own() const {
    const SharedArena& arena = session_.arena();
    std::uint64_t& n_ranges = arena.n_ranges(session_.member());
    n_ranges = 0;
    const auto inputs = plan_.input.pieces();
    const auto outputs = plan_.output.pieces();
    if (inputs.empty() || inputs.size() > SharedArena::kMaxRanges || inputs.size() != outputs.size()) return false;
    std::size_t n_staged = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool is_in_place = inputs[i].data() == outputs[i].data() && inputs[i].size() == outputs[i].size();
      auto range = is_in_place ? arena.regions().find(inputs[i].data(), inputs[i].size()) : std::nullopt;
      if (!range) {
        range = RegionRange{RegionRange::kStaged, n_staged, inputs[i].size()};
        n_staged += inputs[i].size();
        if (n_staged > SharedArena::kStageBytes || inputs[i].size() != outputs[i].size()) return false;
      }
      arena.ranges(session_.member())[i] = *range;
    }
    if (n_staged == plan_.n_bytes) return false;
    stage_own(inputs);
    n_ranges = inputs.size();
    return true;
  }

  void stage_own(std::span<const std::span<const std::byte>> inputs) const {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const RegionRange& range = session_.arena().ranges(session_.member())[i];
      if (range.region != RegionRange::kStaged) continue;
      std::memcpy(own_stage(range).data(), inputs[i].data(), inputs[i].size());
    }
  }

  std::span<std::byte> own_stage(const RegionRange& range) const {
    return session_.arena().stage(session_.member()).subspan(range.offset, range.n_bytes);
  }

  void read_own() {
    const auto outputs = plan_.output.pieces();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const RegionRange& range = session_.arena().ranges(session_.member())[i];
      const auto memory = range.region == RegionRange::kStaged ? own_stage(range) : outputs[i];
      by_member_[index(session_.member())].add(memory.data(), memory.size());
    }
  }

  void read(int member) {
    const SharedArena& arena = session_.arena();
    const std::uint64_t n_ranges = arena.n_ranges(member);
    for (const RegionRange& range : arena.ranges(member).first(n_ranges)) {
      const std::span<std::byte> memory = range.region == RegionRange::kStaged
                                              ? arena.stage(member).subspan(range.offset, range.n_bytes)
                                              : arena.regions().memory(member, range);
      by_member_[index(member)].add(memory.data(), memory.size());
    }
  }

  static std::size_t index(int member) { return static_cast<std::size_t>(member); }

  const ArenaSession& session_;
  const Plan& plan_;
  bool is_applicable_;
  bool is_own_shared_ = false;
  std::vector<OutputPieces> by_member_;
  int n_shared_ = 0;
};

}  // namespace ciranda
