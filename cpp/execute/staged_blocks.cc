#include "execute/staged_blocks.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {
namespace {

const std::byte* begin_of(const Staged* staged) { return staged->block().data(); }

}  // namespace

void StagedBlocks::add(Staged& staged) {
  blocks_.insert(std::ranges::upper_bound(blocks_, begin_of(&staged), {}, begin_of), &staged);
}

Staged* StagedBlocks::at(const std::byte* memory) const {
  const auto after = std::ranges::upper_bound(blocks_, memory, {}, begin_of);
  if (after == blocks_.begin()) return nullptr;
  Staged* const staged = *std::prev(after);
  return memory < begin_of(staged) + staged->block().size() ? staged : nullptr;
}

// Calls visit(staged, piece) for each piece that lies in a block.
template <typename Byte, typename Visit>
void StagedBlocks::visit_pieces(const PieceList<Byte>& one, const std::vector<PieceList<Byte>>& by_rank,
                                Visit visit) const {
  const auto visit_list = [&](const PieceList<Byte>& list) REQUIRES(progress_lock) {
    for (const std::span<Byte> piece : list.pieces()) {
      if (Staged* const staged = at(piece.data())) visit(*staged, piece);
    }
  };
  visit_list(one);
  for (const PieceList<Byte>& list : by_rank) visit_list(list);
}

const Staged* StagedBlocks::awaited_by(const Plan& plan) const {
  const Staged* awaited = nullptr;
  visit_pieces(plan.input, plan.input_by_rank, [&](const Staged& staged, auto piece) REQUIRES(progress_lock) {
    if (awaited == nullptr && !staged.is_here(piece)) awaited = &staged;
  });
  return awaited;
}

Result<bool> StagedBlocks::has_inputs(const Plan& plan) const {
  Status status;
  visit_pieces(plan.input, plan.input_by_rank, [&](const Staged& staged, auto /*piece*/) REQUIRES(progress_lock) {
    if (status.ok()) status = staged.status();
  });
  if (!status.ok()) return status;
  return awaited_by(plan) == nullptr;
}

// At once for each call: its pieces follow each other.
void StagedBlocks::put_results(const Plan& plan) {
  std::vector<std::pair<Staged*, std::vector<std::span<std::byte>>>> puts;
  visit_pieces(plan.output, plan.output_by_rank, [&puts](Staged& staged, std::span<std::byte> piece) {
    if (puts.empty() || puts.back().first != &staged) puts.push_back({&staged, {}});
    puts.back().second.push_back(piece);
  });
  for (const auto& [staged, pieces] : puts) staged->put(pieces);
}

}  // namespace ciranda
