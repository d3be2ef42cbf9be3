#include "collective/shm_broadcast.hpp"

#include "base/round_up.hpp"
#include "collective/slices.hpp"

namespace ciranda {
namespace {

class ShmBroadcast final : public RunningCollective {
 public:
  ShmBroadcast(ArenaSession& session, const Plan& plan)
      : parts_(session.parts()),
        is_root_(session.member() == plan.root),
        plan_(plan),
        n_parts_(divide_up(plan.n_bytes, parts_.n_bytes())),
        first_part_(ArenaParts::first_of(session.take(divide_up(n_parts_, ArenaParts::kParts)))) {}

  Progress step() override {
    const std::size_t n_before = n_done_;
    while (n_done_ < std::min(n_before + ArenaParts::kParts, n_parts_) && is_ready()) {
      is_root_ ? pack() : read();
      parts_.publish(Counter::kConsumed, part());
      ++n_done_;
    }
    if (n_done_ == n_parts_) return Progress::kDone;
    return n_done_ > n_before ? Progress::kMoved : Progress::kStuck;
  }

  std::vector<int> awaited() const override { return is_root_ ? parts_.holding(part()) : std::vector<int>{plan_.root}; }

 private:
  using Counter = ArenaSession::Counter;

  std::uint64_t part() const { return first_part_ + n_done_; }
  std::size_t offset() const { return n_done_ * parts_.n_bytes(); }
  std::span<std::byte> place() const {
    return {parts_.place(plan_.root, part()), block_of(plan_.n_bytes, parts_.n_bytes(), n_done_).n_bytes};
  }

  bool is_ready() const { return is_root_ ? parts_.is_free(part()) : parts_.has(plan_.root, Counter::kPacked, part()); }
  void pack() const {
    gather_for_others(plan_.input, offset(), place(), ReadLast::kElsewhere);
    parts_.publish(Counter::kPacked, part());
    copy_pieces(plan_.input, plan_.output, offset(), place().size());
  }
  void read() const { scatter(plan_.output, offset(), place()); }

  const ArenaParts& parts_;
  bool is_root_;
  const Plan& plan_;
  std::size_t n_parts_;
  std::uint64_t first_part_;
  std::size_t n_done_ = 0;
};

}  // namespace

std::unique_ptr<RunningCollective> shm_broadcast(ArenaSession& session, const Plan& plan) {
  return std::make_unique<ShmBroadcast>(session, plan);
}

}  // namespace ciranda
