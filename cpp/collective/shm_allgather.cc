#include "collective/shm_allgather.hpp"

#include <algorithm>

#include "collective/slices.hpp"

namespace ciranda {
namespace {

class ShmAllgather final : public RunningCollective {
 public:
  ShmAllgather(ArenaSession& session, const Plan& plan)
      : session_(session), plan_(plan), n_chunks_(count_chunks()), first_chunk_(session.take(n_chunks_)) {}

  Progress step() override {
    if (n_read_ == n_chunks_) return Progress::kDone;
    if (n_packed_ < n_chunks_ && session_.is_slot_free(first_chunk_ + n_packed_)) {
      pack(n_packed_++);
      return Progress::kMoved;
    }
    if (n_read_ == n_packed_ || !session_.have_all(ArenaSession::Counter::kPacked, first_chunk_ + n_read_)) {
      return Progress::kStuck;
    }
    read(n_read_++);
    return n_read_ == n_chunks_ ? Progress::kDone : Progress::kMoved;
  }

  std::vector<int> awaited() const override {
    if (n_read_ < n_packed_) return session_.lacking(ArenaSession::Counter::kPacked, first_chunk_ + n_read_);
    return session_.holding_slot(first_chunk_ + n_packed_);
  }

 private:
  std::size_t count_chunks() const {
    std::size_t longest = 0;
    for (const OutputPieces& output : plan_.output_by_rank) longest = std::max(longest, output.n_bytes());
    return (longest + session_.slot_bytes() - 1) / session_.slot_bytes();
  }

  // The part of a rank's n_bytes that chunk i carries; empty when its bytes have ended.
  Slice range(std::size_t i, std::size_t n_bytes) const {
    const std::size_t begin = std::min(i * session_.slot_bytes(), n_bytes);
    return {begin, std::min(session_.slot_bytes(), n_bytes - begin)};
  }

  void pack(std::size_t i) {
    const Slice part = range(i, plan_.input.n_bytes());
    std::byte* slot = session_.own_slot(first_chunk_ + i);
    gather(plan_.input, part.offset, {slot, part.n_bytes});
    session_.publish(ArenaSession::Counter::kPacked, first_chunk_ + i);
    scatter(plan_.output_by_rank[static_cast<std::size_t>(session_.member())], part.offset, {slot, part.n_bytes});
  }

  void read(std::size_t i) {
    for (int step = 1; step < session_.n_members(); ++step) {
      const int member = (session_.member() + step) % session_.n_members();
      const OutputPieces& output = plan_.output_by_rank[static_cast<std::size_t>(member)];
      const Slice part = range(i, output.n_bytes());
      scatter(output, part.offset, {session_.slot(member, first_chunk_ + i), part.n_bytes});
    }
    session_.publish(ArenaSession::Counter::kConsumed, first_chunk_ + i);
  }

  ArenaSession& session_;
  const Plan& plan_;
  std::size_t n_chunks_;
  std::uint64_t first_chunk_;
  std::size_t n_packed_ = 0;
  std::size_t n_read_ = 0;
};

}  // namespace

std::unique_ptr<RunningCollective> shm_allgather(ArenaSession& session, const Plan& plan) {
  return std::make_unique<ShmAllgather>(session, plan);
}

}  // namespace ciranda
