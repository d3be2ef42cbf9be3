#include "backend/cuda/peer_reduction.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/round_up.hpp"

namespace ciranda::cuda {
namespace {

// Chunks up to this part of a slot go by one shot: to hear of the end of one more stage takes longer than to reduce
// them.
constexpr std::size_t kSlotsOfOneShot = 16;

}  // namespace

// The last stage is for those that receive the result.
std::span<const PeerStage> PeerReduction::stages() const {
  static constexpr std::array kOneShot{kPack, Stage{.does = Does::kReduce, .awaits = Counter::kPacked}};
  static constexpr std::array kTwoShots{
      kPack, Stage{.does = Does::kReduce, .awaits = Counter::kPacked, .publishes = Counter::kReduced},
      Stage{.does = Does::kUnpack, .awaits = Counter::kReduced}};
  const std::span<const Stage> all = is_one_shot() ? std::span<const Stage>(kOneShot) : kTwoShots;
  return plan().is_receiver(self()) ? all : all.first(all.size() - 1);
}

PeerStream::Work PeerReduction::work(Does what) const {
  if (what == Does::kPack) return pack_input();
  if (what == Does::kUnpack) return unpack();
  return is_one_shot() ? reduce_to_output(inputs(0), offset(), n_bytes()) : reduce_share();
}

// With two ranks, each reads as much by one shot as by two, or less.
bool PeerReduction::is_one_shot() const { return n_members() == 2 || n_bytes() <= slot_bytes() / kSlotsOfOneShot; }

PeerReduction::Share PeerReduction::share(int member) const {
  const auto n = static_cast<std::size_t>(n_members());
  const std::size_t each = round_up((n_bytes() + n - 1) / n, PeerMemory::kAlignment);
  const std::size_t begin = std::min(n_bytes(), static_cast<std::size_t>(member) * each);
  return {begin, std::min(each, n_bytes() - begin)};
}

std::vector<const std::byte*> PeerReduction::inputs(std::size_t at) const {
  std::vector<const std::byte*> inputs;
  for (int member = 0; member < n_members(); ++member) inputs.push_back(slot(member) + at);
  return inputs;
}

PeerStream::Work PeerReduction::reduce_share() const {
  const Share own = share(self());
  return reduce(inputs(own.at), room(self()) + own.at, own.n_bytes);
}

PeerStream::Work PeerReduction::unpack() const {
  Copies copies;
  for (int member = 0; member < n_members(); ++member) {
    const Share share = this->share(member);
    add(copies, room(member) + share.at, plan().output, offset() + share.at, share.n_bytes);
  }
  return copy(std::move(copies));
}

}  // namespace ciranda::cuda
