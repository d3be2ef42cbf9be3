#include <vector>

#include "collective/launch.hpp"
#include "collective/rounding.hpp"

namespace ciranda {
namespace {

class OneShot final : public RunningCollective {
 public:
  explicit OneShot(const Launch& launch)
      : session_(*launch.session),
        plan_(launch.plan),
        contributors_(plan_.contributors_of(session_.n_members())),
        chunk_(session_.take(1)) {}

  Progress step() override {
    if (!is_packed_) {
      if (!session_.is_slot_free(chunk_)) return Progress::kStuck;
      gather_for_others(plan_.input, 0, {session_.own_slot(chunk_), plan_.input.n_bytes()}, ReadLast::kElsewhere);
      session_.publish(Counter::kPacked, chunk_);
      is_packed_ = true;
      if (!plan_.is_receiver(session_.member())) return finish();
      return Progress::kMoved;
    }
    if (!session_.have_all(Counter::kPacked, chunk_)) return Progress::kStuck;
    reduce();
    return finish();
  }

  std::vector<int> awaited() const override {
    return is_packed_ ? session_.lacking(Counter::kPacked, chunk_) : session_.holding_slot(chunk_);
  }

 private:
  using Counter = ArenaSession::Counter;

  Progress finish() const {
    session_.publish(Counter::kConsumed, chunk_);
    return Progress::kDone;
  }

  void reduce() const {
    std::vector<const std::byte*> inputs;
    for (const int member : contributors_) inputs.push_back(session_.slot(member, chunk_));
    reduce_pieces(plan_, inputs, plan_.output, {0, plan_.output.n_bytes()});
  }

  ArenaSession& session_;
  const Plan& plan_;
  std::vector<int> contributors_;
  std::uint64_t chunk_;
  bool is_packed_ = false;
};

}  // namespace

std::unique_ptr<RunningCollective> shm_allreduce_one_shot(const Launch& launch) {
  return std::make_unique<OneShot>(launch);
}

}  // namespace ciranda
