#include "backend/cuda/nccl_exchange.hpp"

#include <algorithm>
#include <utility>

namespace ciranda::cuda {
namespace {

// Lists of more pieces are not compared with each other.
constexpr std::size_t kMostPieces = 16;

bool overlap(const InputPieces& input, const OutputPieces& output) {
  for (const std::span<const std::byte> sent : input.pieces()) {
    for (const std::span<std::byte> received : output.pieces()) {
      if (sent.data() < received.data() + received.size() && received.data() < sent.data() + sent.size()) return true;
    }
  }
  return false;
}

bool is_same(const InputPieces& input, const OutputPieces& output) {
  return input.n_bytes() > 0 && input.n_bytes() == output.n_bytes() && input.pieces().size() == 1 &&
         output.pieces().size() == 1 && input.at(0).data() == output.at(0).data();
}

// Whether a rank's output lies over what it sends to others.
bool overwrites_input(const Plan& plan, int self) {
  const std::size_t n_lists = std::max<std::size_t>(plan.input_by_rank.size(), 1);
  for (std::size_t from = 0; from < plan.output_by_rank.size(); ++from) {
    const OutputPieces& output = plan.output_by_rank[from];
    for (std::size_t to = 0; to < n_lists; ++to) {
      const InputPieces& input = plan.input_for(static_cast<int>(to));
      const bool is_own = static_cast<int>(from) == self && (plan.input_by_rank.empty() || to == from);
      if (is_own && is_same(input, output)) continue;
      if (input.pieces().size() + output.pieces().size() > kMostPieces || overlap(input, output)) return true;
    }
  }
  return false;
}

// The same on all ranks.
bool goes_at_once(const Plan& plan, std::size_t most_bytes) {
  if (plan.collective != Collective::kAllgather || plan.n_bytes > most_bytes) return false;
  return std::ranges::count(plan.n_bytes_from, plan.n_bytes) == std::ssize(plan.n_bytes_from);
}

std::size_t n_shares(const NcclGroup& group, const Plan& plan) {
  const auto n = static_cast<std::size_t>(group.mesh.size());
  return plan.input_by_rank.empty() ? 1 + n : 2 * n;
}

}  // namespace

NcclExchange::NcclExchange(NcclGroup& group, const Plan& plan)
    : NcclCollective(group, plan, share_of_room(group, n_shares(group, plan))),
      share_bytes_(share_of_room(group, n_shares(group, plan))),
      is_by_rank_(!plan.input_by_rank.empty()),
      must_pack_(overwrites_input(plan, group.mesh.rank())),
      is_all_at_once_(goes_at_once(plan, share_bytes_)) {}

std::size_t NcclExchange::n_bytes_to(int member) const {
  return plan().is_receiver(member) ? n_bytes_of(plan().input_for(member).n_bytes()) : 0;
}

std::size_t NcclExchange::n_bytes_from(int member) const {
  return plan().is_receiver(self()) ? n_bytes_of(plan().n_bytes_from[static_cast<std::size_t>(member)]) : 0;
}

const std::byte* NcclExchange::from(int member) const {
  const std::byte* const there = whole(plan().input_for(member), offset(), n_bytes_to(member));
  if (there != nullptr && !must_pack_) return there;
  return room() + (is_by_rank_ ? static_cast<std::size_t>(member) * share_bytes_ : 0);
}

std::byte* NcclExchange::room_for(int member) const {
  const auto n_sent = is_by_rank_ ? static_cast<std::size_t>(n_members()) : 1;
  const std::size_t each = is_all_at_once_ ? n_bytes() : share_bytes_;
  return room() + n_sent * share_bytes_ + static_cast<std::size_t>(member) * each;
}

std::byte* NcclExchange::to(int member) const {
  if (is_all_at_once_) {
    std::byte* const all = whole_output();
    return all == nullptr ? room_for(member) : all + static_cast<std::size_t>(member) * n_bytes();
  }
  std::byte* const there = whole(output_of(member), offset(), n_bytes_from(member));
  return there == nullptr ? room_for(member) : there;
}

std::byte* NcclExchange::whole_output() const {
  std::byte* const first = whole(output_of(0), 0, n_bytes());
  for (int member = 1; first != nullptr && member < n_members(); ++member) {
    const OutputPieces& output = output_of(member);
    const bool follows = output.n_bytes() == n_bytes() && output.pieces().size() == 1 &&
                         output.at(0).data() == first + static_cast<std::size_t>(member) * n_bytes();
    if (!follows) return nullptr;
  }
  return first;
}

NcclCollective::Steps NcclExchange::moves() const {
  Copies packed;
  Operations calls;
  bool is_packed = false;  // what is the same for all
  for (int member = 0; member < n_members(); ++member) {
    const bool is_sent = plan().collective == Collective::kAllgather ? member == self() : member != self();
    const std::size_t n_bytes = is_sent ? n_bytes_to(member) : 0;
    if (n_bytes == 0) continue;
    std::byte* const shared = room() + (is_by_rank_ ? static_cast<std::size_t>(member) * share_bytes_ : 0);
    if (from(member) == shared && !std::exchange(is_packed, !is_by_rank_)) {
      add(packed, plan().input_for(member), offset(), shared, n_bytes);
    }
  }
  const bool has_own = is_all_at_once_ && whole_output() != nullptr;  // by NCCL
  const OutputPieces& own = output_of(self());
  if (!has_own) add(packed, plan().input_for(self()), own, offset(), n_bytes_of(own.n_bytes()));
  if (plan().collective == Collective::kAllgather) return {std::move(packed), allgather(from(self()))};
  for (int member = 0; member < n_members(); ++member) {
    if (member == self()) continue;
    call(calls, {.does = Does::kSend, .from = from(member), .count = n_bytes_to(member), .peer = member});
    call(calls, {.does = Does::kReceive, .to = to(member), .count = n_bytes_from(member), .peer = member});
  }
  return {std::move(packed), std::move(calls)};
}

NcclCollective::Operations NcclExchange::allgather(const std::byte* from) const {
  Operations calls;
  if (is_all_at_once_) {
    call(calls, {.does = Does::kAllgather, .from = from, .to = to(0), .count = n_bytes()});
    return calls;
  }
  for (int root = 0; root < n_members(); ++root) {
    std::byte* const memory = root == self() ? const_cast<std::byte*>(from) : to(root);
    call(calls, {.does = Does::kBroadcast, .from = memory, .to = memory, .count = n_bytes_from(root), .peer = root});
  }
  return calls;
}

NcclCollective::Steps NcclExchange::results() const {
  Copies unpacked;
  for (int member = 0; member < n_members(); ++member) {
    const std::size_t n_bytes = n_bytes_of(output_of(member).n_bytes());
    if (member == self() || n_bytes == 0 || to(member) != room_for(member)) continue;
    add(unpacked, room_for(member), output_of(member), offset(), n_bytes);
  }
  if (unpacked.empty()) return {};
  return {std::move(unpacked)};
}

}  // namespace ciranda::cuda
