#include <algorithm>
#include <utility>

#include "base/round_up.hpp"
#include "collective/launch.hpp"
#include "collective/slices.hpp"

namespace ciranda {
namespace {

class ShmExchange final : public RunningCollective {
 public:
  explicit ShmExchange(const Launch& launch)
      : session_(*launch.session),
        plan_(launch.plan),
        is_shared_out_(!plan_.input_by_rank.empty()),
        part_bytes_(std::min(is_shared_out_ ? session_.share_bytes(session_.n_members() - 1) : session_.slot_bytes(),
                             kMostPartBytes)),
        n_chunks_(divide_up(plan_.n_bytes, part_bytes_)),
        first_chunk_(session_.take(n_chunks_)) {}

  Progress step() override {
    if (n_read_ == n_chunks_) return Progress::kDone;
    if (n_packed_ < n_chunks_ && session_.is_slot_free(first_chunk_ + n_packed_)) {
      pack(n_packed_++);
      return Progress::kMoved;
    }
    if (n_read_ == n_packed_ || !has_arrived(n_read_)) return Progress::kStuck;
    read(n_read_++);
    return n_read_ == n_chunks_ ? Progress::kDone : Progress::kMoved;
  }

  std::vector<int> awaited() const override {
    if (n_read_ == n_packed_) return session_.holding_slot(first_chunk_ + n_packed_);
    std::vector<int> members;
    for (int member = 0; member < session_.n_members(); ++member) {
      if (is_lacking(n_read_, member)) members.push_back(member);
    }
    return members;
  }

 private:
  using Counter = ArenaSession::Counter;

  // The data in transit, with its source and its destination, should fit into a core's own caches.
  static constexpr std::size_t kMostPartBytes = 128 << 10;

  // The part of n_bytes that chunk i carries.
  Slice range(std::size_t i, std::size_t n_bytes) const { return block_of(n_bytes, part_bytes_, i); }
  // The place of one member's data for another. In every second use of the slots, members write where they have read in
  // the use before, so that the lines are in the writer's own caches. If all receive the same data, each member moves
  // on by one slot; otherwise the two members swap their shares.
  std::byte* place(int from, int to, std::size_t i) const {
    const std::uint64_t chunk = first_chunk_ + i;
    const std::uint64_t turn = chunk / 2;
    if (!is_shared_out_) {
      const auto n_members = static_cast<std::uint64_t>(session_.n_members());
      return session_.slot(static_cast<int>((static_cast<std::uint64_t>(from) + turn) % n_members), chunk);
    }
    if (turn % 2 == 1) std::swap(from, to);
    return session_.slot(from, chunk) + share_offset(to, from);
  }
  // The offset of a member's share in another's slot. The owner of a slot has no share in it.
  std::size_t share_offset(int member, int owner) const {
    return static_cast<std::size_t>(member < owner ? member : member - 1) * part_bytes_;
  }
  const OutputPieces& output_of(int member) const { return plan_.output_by_rank[static_cast<std::size_t>(member)]; }

  void pack(std::size_t i) {
    const int self = session_.member();
    if (is_shared_out_) {
      for (int member = 0; member < session_.n_members(); ++member) {
        if (member != self) pack_for(member, i);
      }
    } else {
      pack_for(self, i);  // the same for all
    }
    session_.publish(Counter::kPacked, first_chunk_ + i);
    const Slice own = range(i, output_of(self).n_bytes());
    copy_pieces(plan_.input_for(self), output_of(self), own.offset, own.n_bytes);
  }

  void pack_for(int member, std::size_t i) {
    const InputPieces& input = plan_.input_for(member);
    const Slice part = range(i, input.n_bytes());
    gather_for_others(input, part.offset, {place(session_.member(), member, i), part.n_bytes}, ReadLast::kHere);
  }

  // Waits only for members with data for this rank.
  bool is_lacking(std::size_t i, int member) const {
    return member != session_.member() && range(i, output_of(member).n_bytes()).n_bytes > 0 &&
           !session_.has(member, Counter::kPacked, first_chunk_ + i);
  }
  bool has_arrived(std::size_t i) const {
    for (int member = 0; member < session_.n_members(); ++member) {
      if (is_lacking(i, member)) return false;
    }
    return true;
  }

  void read(std::size_t i) {
    const int self = session_.member();
    for (int step = 1; step < session_.n_members(); ++step) {  // rotated: not all begin with the same slot
      const int member = (self + step) % session_.n_members();
      const Slice part = range(i, output_of(member).n_bytes());
      scatter(output_of(member), part.offset, {place(member, self, i), part.n_bytes});
    }
    session_.publish(Counter::kConsumed, first_chunk_ + i);
  }

  ArenaSession& session_;
  const Plan& plan_;
  bool is_shared_out_;
  std::size_t part_bytes_;
  std::size_t n_chunks_;
  std::uint64_t first_chunk_;
  std::size_t n_packed_ = 0;
  std::size_t n_read_ = 0;
};

}  // namespace

std::unique_ptr<RunningCollective> shm_exchange(const Launch& launch) { return std::make_unique<ShmExchange>(launch); }

}  // namespace ciranda
