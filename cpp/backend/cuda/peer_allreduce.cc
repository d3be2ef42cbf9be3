#include "backend/cuda/peer_allreduce.hpp"

#include <algorithm>
#include <utility>

#include "backend/cuda/kernels/launches.hpp"
#include "base/round_up.hpp"

namespace ciranda::cuda {
namespace {

using Counter = ArenaSession::Counter;

// Chunks of up to 1 / kSlotsOfOneShot of a slot use one shot: reducing a whole one takes less time than one more phase.
constexpr std::size_t kSlotsOfOneShot = 16;

// Append the copies of n_bytes from a plan's pieces to contiguous memory, and back.
void add_input(std::vector<Piece>& to, const InputPieces& pieces, std::size_t offset, std::byte* memory,
               std::size_t n_bytes) {
  pieces.for_range(offset, n_bytes, [&](std::span<const std::byte> part, std::size_t at) {
    to.push_back({part.data(), memory + at, part.size(), 0});
  });
}
void add_output(std::vector<Piece>& to, const OutputPieces& pieces, std::size_t offset, const std::byte* memory,
                std::size_t n_bytes) {
  pieces.for_range(offset, n_bytes, [&](std::span<std::byte> part, std::size_t at) {
    to.push_back({memory + at, part.data(), part.size(), 0});
  });
}

ReduceFactors factors_of(const Plan& plan) { return {plan.prescale, plan.postscale, plan.n_average, plan.weights}; }

}  // namespace

PeerAllreduce::PeerAllreduce(PeerGroup& group, const Plan& plan)
    : group_(group), plan_(plan), chunk_(group.session.take(1)), n_bytes_(std::min(plan.n_bytes, group.slot_bytes)) {}

std::byte* PeerAllreduce::slot(int member) const {
  return PeerMemory::slot(group_.memory[static_cast<std::size_t>(member)], group_.slot_bytes, chunk_);
}
std::byte* PeerAllreduce::room(int member) const {
  return PeerMemory::room(group_.memory[static_cast<std::size_t>(member)], group_.slot_bytes, chunk_);
}

// With two ranks, one shot reads no more than two shots do.
bool PeerAllreduce::is_one_shot() const {
  return group_.session.n_members() == 2 || n_bytes_ <= group_.slot_bytes / kSlotsOfOneShot;
}

PeerAllreduce::Share PeerAllreduce::share(int member) const {
  const auto n = static_cast<std::size_t>(group_.session.n_members());
  const std::size_t each = round_up((n_bytes_ + n - 1) / n, PeerMemory::kAlignment);
  const std::size_t begin = std::min(n_bytes_, static_cast<std::size_t>(member) * each);
  return {begin, std::min(each, n_bytes_ - begin)};
}

Progress PeerAllreduce::step() {
  const ArenaSession& session = group_.session;
  switch (phase_) {
    case Phase::kSlot:
      if (!session.is_slot_free(chunk_)) return Progress::kStuck;
      pack();
      phase_ = Phase::kPacking;
      return Progress::kMoved;
    case Phase::kPacking:
      if (!has_ended()) return Progress::kStuck;
      session.publish(Counter::kPacked, chunk_);
      phase_ = Phase::kPacked;
      return Progress::kMoved;
    case Phase::kPacked:
      if (!session.have_all(Counter::kPacked, chunk_)) return Progress::kStuck;
      reduce();
      phase_ = Phase::kReducing;
      return Progress::kMoved;
    case Phase::kReducing:
      if (!has_ended()) return Progress::kStuck;
      if (is_one_shot()) return end_chunk();
      session.publish(Counter::kReduced, chunk_);
      phase_ = Phase::kReduced;
      return Progress::kMoved;
    case Phase::kReduced:
      if (!session.have_all(Counter::kReduced, chunk_)) return Progress::kStuck;
      unpack();
      phase_ = Phase::kUnpacking;
      return Progress::kMoved;
    case Phase::kUnpacking: break;
  }
  return has_ended() ? end_chunk() : Progress::kStuck;
}

std::vector<int> PeerAllreduce::awaited() const {
  if (phase_ == Phase::kSlot) return group_.session.holding_slot(chunk_);
  if (phase_ == Phase::kPacked) return group_.session.lacking(Counter::kPacked, chunk_);
  if (phase_ == Phase::kReduced) return group_.session.lacking(Counter::kReduced, chunk_);
  return {};
}

bool PeerAllreduce::has_ended() {
  if (group_.stream.is_under_way()) return false;
  status_ = group_.stream.status();
  return status_.ok();
}

void PeerAllreduce::pack() {
  group_.last = chunk_;
  std::vector<Piece> pieces;
  add_input(pieces, plan_.input, offset_, slot(group_.session.member()), n_bytes_);
  const std::vector<DeviceEventPtr> after = offset_ == 0 ? plan_.after : std::vector<DeviceEventPtr>{};
  group_.stream.run(group_.own->stream(), plan_.holds, [after, pieces = std::move(pieces)](PeerStream::Tasks& tasks) {
    for (const DeviceEventPtr& event : after) {
      if (Status status = tasks.wait_for(*event); !status.ok()) return status;
    }
    return tasks.copy(pieces);
  });
}

// By one shot, a chunk that is not contiguous in the output is reduced to the room, and unpacked from there at once.
void PeerAllreduce::reduce() {
  const int self = group_.session.member();
  const Share share = is_one_shot() ? Share{0, n_bytes_} : this->share(self);
  std::vector<const std::byte*> inputs;
  for (int member = 0; member < group_.session.n_members(); ++member) inputs.push_back(slot(member) + share.at);
  std::byte* to = room(self) + share.at;
  std::vector<Piece> pieces;
  if (is_one_shot()) {
    const auto whole = plan_.output.contiguous(offset_, n_bytes_);
    if (whole.empty()) {
      add_output(pieces, plan_.output, offset_, to, n_bytes_);
    } else {
      to = whole.data();
    }
  }
  const ReduceLaunch launch =
      make_reduce(plan_.dtype, plan_.op, factors_of(plan_), inputs, to, share.n_bytes / size_of(plan_.dtype));
  const bool has_share = share.n_bytes > 0;
  group_.stream.run(group_.own->stream(), plan_.holds,
                    [launch, has_share, pieces = std::move(pieces)](PeerStream::Tasks& tasks) {
                      Status status = has_share ? tasks.reduce(launch) : Status::ok_status();
                      return status.ok() ? tasks.copy(pieces) : status;
                    });
}

void PeerAllreduce::unpack() {
  std::vector<Piece> pieces;
  for (int member = 0; member < group_.session.n_members(); ++member) {
    const Share share = this->share(member);
    if (share.n_bytes == 0) continue;
    add_output(pieces, plan_.output, offset_ + share.at, room(member) + share.at, share.n_bytes);
  }
  group_.stream.run(group_.own->stream(), plan_.holds,
                    [pieces = std::move(pieces)](PeerStream::Tasks& tasks) { return tasks.copy(pieces); });
}

Progress PeerAllreduce::end_chunk() {
  group_.session.publish(Counter::kConsumed, chunk_);
  offset_ += n_bytes_;
  if (offset_ == plan_.n_bytes) return Progress::kDone;
  chunk_ = group_.session.take(1);
  n_bytes_ = std::min(plan_.n_bytes - offset_, group_.slot_bytes);
  phase_ = Phase::kSlot;
  return Progress::kMoved;
}

}  // namespace ciranda::cuda
