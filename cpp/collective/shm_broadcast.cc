#include "collective/shm_broadcast.hpp"

#include "collective/copy_pieces.hpp"
#include "collective/slices.hpp"

namespace ciranda {
namespace {

class ShmBroadcast final : public RunningCollective {
 public:
  ShmBroadcast(ArenaSession& session, const Plan& plan)
      : session_(session),
        plan_(plan),
        n_chunks_(n_blocks_of(plan.n_bytes, session.slot_bytes())),
        first_chunk_(session.take(n_chunks_)) {}

  Progress step() override {
    if (n_done_ == n_chunks_) return Progress::kDone;
    const std::uint64_t chunk = first_chunk_ + n_done_;
    const auto [offset, n_bytes] = block_of(plan_.n_bytes, session_.slot_bytes(), n_done_);
    if (session_.member() == plan_.root) {
      if (!session_.is_slot_free(chunk)) return Progress::kStuck;
      gather_for_others(plan_.input, offset, {session_.own_slot(chunk), n_bytes}, ReadLast::kElsewhere);
      session_.publish(ArenaSession::Counter::kPacked, chunk);
    } else if (!session_.has(plan_.root, ArenaSession::Counter::kPacked, chunk)) {
      return Progress::kStuck;
    }
    if (session_.member() == plan_.root) {
      copy_pieces(plan_.input, plan_.output, offset, n_bytes);
    } else {
      scatter(plan_.output, offset, {session_.slot(plan_.root, chunk), n_bytes});
    }
    session_.publish(ArenaSession::Counter::kConsumed, chunk);
    return ++n_done_ == n_chunks_ ? Progress::kDone : Progress::kMoved;
  }

  std::vector<int> awaited() const override {
    const std::uint64_t chunk = first_chunk_ + n_done_;
    return session_.member() == plan_.root ? session_.holding_slot(chunk) : std::vector<int>{plan_.root};
  }

 private:
  ArenaSession& session_;
  const Plan& plan_;
  std::size_t n_chunks_;
  std::uint64_t first_chunk_;
  std::size_t n_done_ = 0;
};

}  // namespace

std::unique_ptr<RunningCollective> shm_broadcast(ArenaSession& session, const Plan& plan) {
  return std::make_unique<ShmBroadcast>(session, plan);
}

}  // namespace ciranda
