#include "backend/cuda/nccl_ordered_reduction.hpp"

#include <algorithm>
#include <utility>

#include "base/round_up.hpp"

namespace ciranda::cuda {
namespace {

// What goes by one shot: to start one more exchange takes longer than to move it to all.
constexpr std::size_t kMostOneShotBytes = 64 << 10;
constexpr std::size_t kRoomAreas = 3;
constexpr std::size_t kAreaAlignment = NcclRoom::kAlignment;

std::size_t area_bytes(const NcclGroup& group) {
  return group.room_bytes / kRoomAreas / kAreaAlignment * kAreaAlignment;
}

// So that an area has the parts of all; or the shares of all, each of which is rounded up.
std::size_t most_bytes_in_order(const NcclGroup& group, const Plan& plan) {
  const auto n = static_cast<std::size_t>(group.mesh.size());
  const std::size_t part = area_bytes(group) / n / kAreaAlignment * kAreaAlignment;
  return plan.collective == Collective::kReducescatter ? part
                                                       : (part - kAreaAlignment) * n / kAreaAlignment * kAreaAlignment;
}

}  // namespace

NcclOrderedReduction::NcclOrderedReduction(NcclGroup& group, const Plan& plan)
    : NcclCollective(group, plan, most_bytes_in_order(group, plan)), area_bytes_(area_bytes(group)) {}

NcclOrderedReduction::Shots NcclOrderedReduction::shots() const {
  if (plan().collective == Collective::kReducescatter) return Shots::kParts;
  const std::size_t all = round_up(n_bytes(), kAreaAlignment) * static_cast<std::size_t>(n_members());
  return n_bytes() <= kMostOneShotBytes && all <= area_bytes_ ? Shots::kOne : Shots::kTwo;
}

std::size_t NcclOrderedReduction::share_stride() const {
  const auto n = static_cast<std::size_t>(n_members());
  return round_up(shots() == Shots::kTwo ? (n_bytes() + n - 1) / n : n_bytes(), kAreaAlignment);
}

NcclOrderedReduction::Share NcclOrderedReduction::share_for(int member) const {
  if (shots() == Shots::kOne) return {0, n_bytes()};
  if (shots() == Shots::kParts) return {0, n_bytes_of(plan().input_for(member).n_bytes())};
  const std::size_t begin = std::min(n_bytes(), static_cast<std::size_t>(member) * share_stride());
  return {begin, std::min(share_stride(), n_bytes() - begin)};
}

const std::byte* NcclOrderedReduction::sent_to(int member) const {
  const Share share = share_for(member);
  const InputPieces& input = plan().input_for(member);
  const std::byte* const there = whole(input, offset() + share.at, share.n_bytes);
  if (there != nullptr) return there;
  return area(0) + (shots() == Shots::kTwo   ? share.at
                    : shots() == Shots::kOne ? 0
                                             : static_cast<std::size_t>(member) * share_stride());
}

Copies NcclOrderedReduction::packed() const {
  Copies copies;
  for (int member = 0; member < n_members(); ++member) {
    if (shots() == Shots::kOne && member != self()) continue;  // the same for all
    const Share share = share_for(member);
    const InputPieces& input = plan().input_for(member);
    if (share.n_bytes == 0 || whole(input, offset() + share.at, share.n_bytes) != nullptr) continue;
    add(copies, input, offset() + share.at, const_cast<std::byte*>(sent_to(member)), share.n_bytes);
  }
  return copies;
}

// To each member what this rank has for it.
NcclCollective::Operations NcclOrderedReduction::exchange() const {
  Operations calls;
  const bool is_one_shot = shots() == Shots::kOne;
  for (int member = 0; member < n_members(); ++member) {
    if (member == self()) continue;
    if (!is_one_shot || plan().is_receiver(member)) {
      call(calls, {.does = Does::kSend, .from = sent_to(member), .count = share_for(member).n_bytes, .peer = member});
    }
    if (!is_one_shot || has_result()) {
      const std::size_t n_bytes = share_for(self()).n_bytes;
      call(calls, {.does = Does::kReceive, .to = received_from(member), .count = n_bytes, .peer = member});
    }
  }
  return calls;
}

// Of two shots: the reduced shares, to all who get the result.
NcclCollective::Operations NcclOrderedReduction::collect() const {
  std::byte* const own = area(2) + share_for(self()).at;
  if (is_to_all()) {
    const std::size_t stride = share_stride();
    std::byte* const begin = area(2) + static_cast<std::size_t>(self()) * stride;
    return {{.does = Does::kAllgather, .from = begin, .to = area(2), .count = stride}};
  }
  Operations calls;
  for (int member = 0; member < n_members(); ++member) {
    if (member == self()) continue;
    if (plan().is_receiver(member)) {
      call(calls, {.does = Does::kSend, .from = own, .count = share_for(self()).n_bytes, .peer = member});
    }
    if (has_result()) {
      const Share share = share_for(member);
      call(calls, {.does = Does::kReceive, .to = area(2) + share.at, .count = share.n_bytes, .peer = member});
    }
  }
  return calls;
}

ReduceLaunch NcclOrderedReduction::reduce(std::byte* to) const {
  std::vector<const std::byte*> inputs;
  for (int member = 0; member < n_members(); ++member) inputs.push_back(input_of(member));
  return make_reduce(plan(), inputs, to, share_for(self()).n_bytes / size_of(plan().dtype));
}

NcclCollective::Steps NcclOrderedReduction::moves() const {
  Steps steps{packed(), exchange()};
  if (shots() != Shots::kTwo) return steps;
  if (share_for(self()).n_bytes > 0) steps.emplace_back(reduce(area(2) + share_for(self()).at));
  steps.emplace_back(collect());
  return steps;
}

NcclCollective::Steps NcclOrderedReduction::results() const {
  const std::size_t n_bytes = n_bytes_of(plan().output.n_bytes());
  if (!has_result() || n_bytes == 0) return {};
  std::byte* const there = shots() == Shots::kTwo ? nullptr : whole(plan().output, offset(), n_bytes);
  std::byte* const result = there == nullptr ? area(2) : there;
  Steps steps;
  if (shots() != Shots::kTwo) steps.emplace_back(reduce(result));
  if (result == there) return steps;
  Copies unpacked;
  add(unpacked, result, plan().output, offset(), n_bytes);
  steps.emplace_back(std::move(unpacked));
  return steps;
}

}  // namespace ciranda::cuda
