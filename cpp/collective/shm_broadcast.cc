#include "base/round_up.hpp"
#include "collective/launch.hpp"
#include "collective/slices.hpp"

namespace ciranda {
namespace {

class ShmBroadcast final : public RunningCollective {
 public:
  explicit ShmBroadcast(const Launch& launch)
      : session_(*launch.session),
        plan_(launch.plan),
        is_root_(session_.member() == plan_.root),
        n_parts_(divide_up(plan_.n_bytes, session_.part_bytes())),
        first_part_(ArenaSession::first_part(session_.take(divide_up(n_parts_, ArenaSession::kParts)))) {}

  Progress step() override {
    const std::size_t n_before = n_done_;
    while (n_done_ < std::min(n_before + ArenaSession::kParts, n_parts_) && is_ready()) {
      is_root_ ? pack() : read();
      session_.publish_part(Counter::kConsumed, part());
      ++n_done_;
    }
    if (n_done_ == n_parts_) return Progress::kDone;
    return n_done_ > n_before ? Progress::kMoved : Progress::kStuck;
  }

  std::vector<int> awaited() const override {
    return is_root_ ? session_.holding_part(part()) : std::vector<int>{plan_.root};
  }

 private:
  using Counter = ArenaSession::Counter;

  std::uint64_t part() const { return first_part_ + n_done_; }
  std::size_t offset() const { return n_done_ * session_.part_bytes(); }
  std::span<std::byte> place() const {
    return {session_.part_of_slot(plan_.root, part()), block_of(plan_.n_bytes, session_.part_bytes(), n_done_).n_bytes};
  }

  bool is_ready() const {
    return is_root_ ? session_.is_part_free(part()) : session_.has_part(plan_.root, Counter::kPacked, part());
  }
  void pack() const {
    gather_for_others(plan_.input, offset(), place(), ReadLast::kElsewhere);
    session_.publish_part(Counter::kPacked, part());
    copy_pieces(plan_.input, plan_.output, offset(), place().size());
  }
  void read() const { scatter(plan_.output, offset(), place()); }

  ArenaSession& session_;
  const Plan& plan_;
  bool is_root_;
  std::size_t n_parts_;
  std::uint64_t first_part_;
  std::size_t n_done_ = 0;
};

}  // namespace

std::unique_ptr<RunningCollective> shm_broadcast(const Launch& launch) {
  return std::make_unique<ShmBroadcast>(launch);
}

}  // namespace ciranda
