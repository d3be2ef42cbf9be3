#include <vector>

#include "base/round_up.hpp"
#include "collective/launch.hpp"
#include "collective/rounding.hpp"
#include "collective/slices.hpp"

namespace ciranda {
namespace {

class ShmReducescatter final : public RunningCollective {
 public:
  explicit ShmReducescatter(const Launch& launch)
      : session_(*launch.session),
        plan_(launch.plan),
        contributors_(plan_.contributors_of(session_.n_members())),
        part_bytes_(session_.share_bytes()),
        n_chunks_(divide_up(plan_.n_bytes, part_bytes_)),
        first_chunk_(session_.take(n_chunks_)),
        inputs_(contributors_.size()) {}

  Progress step() override {
    if (n_reduced_ == n_chunks_) return Progress::kDone;
    if (n_packed_ < n_chunks_ && session_.is_slot_free(first_chunk_ + n_packed_)) {
      pack(n_packed_++);
      return Progress::kMoved;
    }
    if (n_reduced_ == n_packed_ || !session_.have_all(Counter::kPacked, first_chunk_ + n_reduced_)) {
      return Progress::kStuck;
    }
    reduce(n_reduced_++);
    return n_reduced_ == n_chunks_ ? Progress::kDone : Progress::kMoved;
  }

  std::vector<int> awaited() const override {
    if (n_reduced_ < n_packed_) return session_.lacking(Counter::kPacked, first_chunk_ + n_reduced_);
    return session_.holding_slot(first_chunk_ + n_packed_);
  }

 private:
  using Counter = ArenaSession::Counter;

  // The range of a part of n_bytes that chunk i contains.
  Slice range(std::size_t i, std::size_t n_bytes) const { return block_of(n_bytes, part_bytes_, i); }
  std::byte* part_of_slot(int member, std::size_t i, int for_member) const {
    return session_.slot(member, first_chunk_ + i) + static_cast<std::size_t>(for_member) * part_bytes_;
  }

  void pack(std::size_t i) {
    const int self = session_.member();
    for (int member = 0; member < session_.n_members() && plan_.is_contributor(self); ++member) {
      const InputPieces& input = plan_.input_for(member);
      const Slice part = range(i, input.n_bytes());
      const bool is_read_in_place = member == self && !input.contiguous(part.offset, part.n_bytes).empty();
      if (is_read_in_place) continue;
      gather_for_others(input, part.offset, {part_of_slot(self, i, member), part.n_bytes}, ReadLast::kElsewhere);
    }
    session_.publish(Counter::kPacked, first_chunk_ + i);
  }

  void reduce(std::size_t i) {
    const Slice part = range(i, plan_.output.n_bytes());
    for (std::size_t k = 0; k < inputs_.size(); ++k) inputs_[k] = input_of(contributors_[k], i, part);
    reduce_pieces(plan_, inputs_, plan_.output, part);
    session_.publish(Counter::kConsumed, first_chunk_ + i);
  }

  const std::byte* input_of(int member, std::size_t i, const Slice& part) const {
    const int self = session_.member();
    if (member == self) {
      const auto in_place = plan_.input_for(self).contiguous(part.offset, part.n_bytes);
      if (!in_place.empty()) return in_place.data();
    }
    return part_of_slot(member, i, self);
  }

  ArenaSession& session_;
  const Plan& plan_;
  std::vector<int> contributors_;
  std::size_t part_bytes_;
  std::size_t n_chunks_;
  std::uint64_t first_chunk_;
  std::vector<const std::byte*> inputs_;
  std::size_t n_packed_ = 0;
  std::size_t n_reduced_ = 0;
};

}  // namespace

std::unique_ptr<RunningCollective> shm_reducescatter(const Launch& launch) {
  return std::make_unique<ShmReducescatter>(launch);
}

}  // namespace ciranda
