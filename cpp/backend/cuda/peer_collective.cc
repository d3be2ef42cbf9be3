#include "backend/cuda/peer_collective.hpp"

#include <algorithm>
#include <utility>

#include "backend/cuda/kernels/launches.hpp"

namespace ciranda::cuda {

PeerCollective::PeerCollective(PeerGroup& group, const Plan& plan, std::size_t most_bytes)
    : group_(group), plan_(plan), most_bytes_(most_bytes) {
  begin_chunk();
}

void PeerCollective::begin_chunk() {
  chunk_ = group_.session.take(1);
  n_bytes_ = std::min(plan_.n_bytes - offset_, most_bytes_);
  stage_ = 0;
}

Progress PeerCollective::step() {
  if (is_running_) return end(stage());
  if (!may_begin(stage())) return Progress::kStuck;
  begin(stage());
  return Progress::kMoved;
}

bool PeerCollective::may_begin(const Stage& stage) const {
  const ArenaSession& session = group_.session;
  if (!stage.awaits) return session.is_slot_free(chunk_);
  return stage.of == Stage::kAll ? session.have_all(*stage.awaits, chunk_)
                                 : session.has(stage.of, *stage.awaits, chunk_);
}

// The plan's first stage on this rank comes after what the caller's queues had been given. Those behind it are in the
// same stream.
void PeerCollective::begin(const Stage& stage) {
  group_.last = chunk_;
  const bool is_first = offset_ == 0 && stage_ == 0;
  const std::vector<DeviceEventPtr> after = is_first ? plan_.after : std::vector<DeviceEventPtr>{};
  group_.stream.run(group_.own->stream(), plan_.holds, [after, work = work(stage.does)](PeerStream::Tasks& tasks) {
    for (const DeviceEventPtr& event : after) {
      if (Status status = tasks.wait_for(*event); !status.ok()) return status;
    }
    return work(tasks);
  });
  is_running_ = true;
}

Progress PeerCollective::end(const Stage& stage) {
  if (group_.stream.is_under_way()) return Progress::kStuck;
  status_ = group_.stream.status();
  if (!status_.ok()) return Progress::kStuck;
  is_running_ = false;
  if (stage.publishes) group_.session.publish(*stage.publishes, chunk_);
  if (++stage_ < stages().size()) return Progress::kMoved;
  group_.session.publish(Counter::kConsumed, chunk_);
  offset_ += n_bytes_;
  if (offset_ == plan_.n_bytes) return Progress::kDone;
  begin_chunk();
  return Progress::kMoved;
}

std::vector<int> PeerCollective::awaited() const {
  if (is_running_) return {};
  if (!stage().awaits) return group_.session.holding_slot(chunk_);
  return stage().of == Stage::kAll ? group_.session.lacking(*stage().awaits, chunk_) : std::vector<int>{stage().of};
}

std::string PeerCollective::awaited_device() const { return group_.stream.awaited_device(); }

std::size_t PeerCollective::n_bytes_of(std::size_t n_bytes) const {
  return std::min(n_bytes_, n_bytes - std::min(n_bytes, offset_));
}
std::byte* PeerCollective::slot(int member) const {
  return PeerMemory::slot(group_.memory[static_cast<std::size_t>(member)], group_.slot_bytes, chunk_);
}
std::byte* PeerCollective::room(int member) const {
  return PeerMemory::room(group_.memory[static_cast<std::size_t>(member)], group_.slot_bytes, chunk_);
}

std::size_t PeerCollective::share_bytes(const PeerGroup& group) {
  const std::size_t share = group.slot_bytes / static_cast<std::size_t>(group.session.n_members());
  return share / PeerMemory::kAlignment * PeerMemory::kAlignment;
}
std::byte* PeerCollective::share_of_slot(int member, int receiver) const {
  return slot(member) + static_cast<std::size_t>(receiver) * most_bytes_;
}

void PeerCollective::add_share(Copies& to, int receiver) const {
  const InputPieces& input = plan_.input_for(receiver);
  add(to, input, offset_, share_of_slot(self(), receiver), n_bytes_of(input.n_bytes()));
}

PeerStream::Work PeerCollective::copy(Copies copies) {
  return [copies = std::move(copies)](PeerStream::Tasks& tasks) { return tasks.copy(copies); };
}

PeerStream::Work PeerCollective::reduce(const std::vector<const std::byte*>& inputs, std::byte* to, std::size_t n_bytes,
                                        Copies copies) const {
  if (n_bytes == 0) return copy(std::move(copies));
  const ReduceFactors factors{plan_.prescale, plan_.postscale, plan_.n_average, plan_.weights};
  const ReduceLaunch launch = make_reduce(plan_.dtype, plan_.op, factors, inputs, to, n_bytes / size_of(plan_.dtype));
  return [launch, copies = std::move(copies)](PeerStream::Tasks& tasks) {
    Status status = tasks.reduce(launch);
    return status.ok() ? tasks.copy(copies) : status;
  };
}

PeerStream::Work PeerCollective::reduce_to_output(const std::vector<const std::byte*>& inputs, std::size_t offset,
                                                  std::size_t n_bytes) const {
  const auto whole = plan_.output.contiguous(offset, n_bytes);
  if (!whole.empty()) return reduce(inputs, whole.data(), n_bytes);
  Copies copies;
  add(copies, room(self()), plan_.output, offset, n_bytes);
  return reduce(inputs, room(self()), n_bytes, std::move(copies));
}

}  // namespace ciranda::cuda
