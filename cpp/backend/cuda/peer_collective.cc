#include "backend/cuda/peer_collective.hpp"

#include <algorithm>
#include <utility>

#include "backend/cuda/kernels/launches.hpp"

namespace ciranda::cuda {
namespace {

constexpr std::size_t kMostChunks = 2;  // under way, as slots

}  // namespace

PeerCollective::PeerCollective(PeerGroup& group, const Plan& plan, std::size_t most_bytes)
    : group_(group), plan_(plan), most_bytes_(most_bytes) {}

void PeerCollective::add_chunks() {
  while (chunks_.size() < kMostChunks && n_bytes_begun_ < plan_.n_bytes) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.number = group_.session.take(1);
    chunk.offset = n_bytes_begun_;
    chunk.n_bytes = std::min(plan_.n_bytes - n_bytes_begun_, most_bytes_);
    n_bytes_begun_ += chunk.n_bytes;
    chunk_ = &chunk;
    chunk.stages = stages();
  }
}

// A chunk is consumed after the one before it, since counters only grow.
Progress PeerCollective::step() {
  add_chunks();
  bool has_moved = false;
  const Chunk* before = nullptr;
  for (Chunk& chunk : chunks_) {
    has_moved = advance(chunk, before) || has_moved;
    if (!status_.ok()) return Progress::kStuck;
    before = &chunk;
  }
  if (!chunks_.front().has_ended()) return has_moved ? Progress::kMoved : Progress::kStuck;
  group_.session.publish(Counter::kConsumed, chunks_.front().number);
  chunks_.pop_front();
  return chunks_.empty() && n_bytes_begun_ == plan_.n_bytes ? Progress::kDone : Progress::kMoved;
}

bool PeerCollective::advance(Chunk& chunk, const Chunk* before) {
  if (chunk.has_ended()) return false;
  if (chunk.is_running) return (before == nullptr || before->has_ended(chunk.n_ended)) && end(chunk);
  if ((before != nullptr && !before->has_begun(chunk.n_ended)) || !may_begin(chunk)) return false;
  begin(chunk);
  return true;
}

bool PeerCollective::may_begin(const Chunk& chunk) const {
  const ArenaSession& session = group_.session;
  const Stage& stage = chunk.stage();
  if (!stage.awaits) return session.is_slot_free(chunk.number);
  return stage.of == Stage::kAll ? session.have_all(*stage.awaits, chunk.number)
                                 : session.has(stage.of, *stage.awaits, chunk.number);
}

// The plan's first stage on this rank comes after what the caller's queues had been given. Those behind it are in the
// same stream.
void PeerCollective::begin(Chunk& chunk) {
  group_.last = std::max(chunk.number, group_.last.value_or(0));
  chunk_ = &chunk;
  const bool is_first = chunk.offset == 0 && chunk.n_ended == 0;
  const std::vector<DeviceEventPtr> after = is_first ? plan_.after : std::vector<DeviceEventPtr>{};
  const auto queue = [after, work = work(chunk.stage().does)](PeerStream::Tasks& tasks) {
    for (const DeviceEventPtr& event : after) {
      if (Status status = tasks.wait_for(*event); !status.ok()) return status;
    }
    return work(tasks);
  };
  group_.stream_of(chunk.number).run(group_.own->stream(), plan_.holds, queue);
  chunk.is_running = true;
}

bool PeerCollective::end(Chunk& chunk) {
  const PeerStream& stream = group_.stream_of(chunk.number);
  if (stream.is_under_way()) return false;
  status_ = stream.status();
  if (!status_.ok()) return false;
  chunk.is_running = false;
  const Stage& stage = chunk.stage();
  if (stage.publishes) group_.session.publish(*stage.publishes, chunk.number);
  ++chunk.n_ended;
  return true;
}

std::vector<int> PeerCollective::awaited() const {
  if (chunks_.empty() || chunks_.front().is_running) return {};
  const Chunk& chunk = chunks_.front();
  const Stage& stage = chunk.stage();
  if (!stage.awaits) return group_.session.holding_slot(chunk.number);
  return stage.of == Stage::kAll ? group_.session.lacking(*stage.awaits, chunk.number) : std::vector<int>{stage.of};
}

std::string PeerCollective::awaited_device() const { return group_.awaited_device(); }

std::size_t PeerCollective::n_bytes_of(std::size_t n_bytes) const {
  return std::min(chunk_->n_bytes, n_bytes - std::min(n_bytes, chunk_->offset));
}
std::byte* PeerCollective::slot(int member) const {
  return PeerMemory::slot(group_.memory[static_cast<std::size_t>(member)], group_.slot_bytes, chunk_->number);
}
std::byte* PeerCollective::room(int member) const {
  return PeerMemory::room(group_.memory[static_cast<std::size_t>(member)], group_.slot_bytes, chunk_->number);
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
  add(to, input, chunk_->offset, share_of_slot(self(), receiver), n_bytes_of(input.n_bytes()));
}

PeerStream::Work PeerCollective::copy(Copies copies) {
  return [copies = std::move(copies)](PeerStream::Tasks& tasks) { return tasks.copy(copies); };
}

PeerStream::Work PeerCollective::pack_input() const {
  Copies copies;
  add(copies, plan_.input, chunk_->offset, slot(self()), chunk_->n_bytes);
  return copy(std::move(copies));
}

PeerStream::Work PeerCollective::reduce(const std::vector<const std::byte*>& inputs, std::byte* to, std::size_t n_bytes,
                                        Copies copies) const {
  if (n_bytes == 0) return copy(std::move(copies));
  Reduction reduction = plan_;
  reduction.n_average = static_cast<int>(inputs.size());
  const ReduceLaunch launch = make_reduce(reduction, inputs, to, n_bytes / size_of(plan_.dtype));
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
