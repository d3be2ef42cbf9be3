#include "backend/cuda/peer_settling.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "backend/cuda/used_gpus.hpp"
#include "base/fill_random.hpp"

namespace ciranda::cuda {
namespace {

using Counter = ArenaSession::Counter;

// A random number of this process. By it a process recognizes offers of its own memory, whose handle it cannot open.
// Process ids do not suffice, since each container has its own.
std::uint64_t number_of_process() {
  static const std::uint64_t number = [] {
    std::uint64_t drawn = 0;
    static_cast<void>(fill_random(std::as_writable_bytes(std::span(&drawn, 1))));
    return drawn;
  }();
  return number;
}

UsedGpu used_gpu(PeerGroup& group) {
  Gpu& gpu = group.stream.gpu();
  return {gpu.uuid(), gpu.n_visible(), group.mesh.peer(group.mesh.rank()).rank};
}

}  // namespace

struct PeerSettling::Offer {
  std::uint64_t process;
  std::uint64_t slot_bytes;  // 0: this member has no memory
  const Gpu* gpu;            // this and the next are valid within the process only
  std::byte* address;
  CUipcMemHandle handle;
  UsedGpu used;
};

PeerSettling::PeerSettling(std::shared_ptr<PeerGroup> group, std::size_t slot_bytes)
    : shared_group_(std::move(group)),
      group_(*shared_group_),
      slot_bytes_(slot_bytes),
      chunk_(group_.session.take(1)) {}

const PeerSettling::Offer& PeerSettling::offer_of(int member) const {
  return *reinterpret_cast<const Offer*>(group_.session.slot(member, chunk_));
}

// Whether the member can use the memory of all. It lies behind the offer, since others may still read that when it is
// written.
std::uint64_t& PeerSettling::can_use_all(int member) const {
  static_assert(sizeof(Offer) <= 2 * PeerMemory::kAlignment);
  return *reinterpret_cast<std::uint64_t*>(group_.session.slot(member, chunk_) + 2 * PeerMemory::kAlignment);
}

Progress PeerSettling::step() {
  const ArenaSession& session = group_.session;
  switch (phase_) {
    case Phase::kBegin:
      if (!session.is_slot_free(chunk_)) return Progress::kStuck;
      make();
      phase_ = Phase::kMake;
      return Progress::kMoved;
    case Phase::kMake:
      if (group_.stream.is_under_way()) return Progress::kStuck;
      offer();
      phase_ = Phase::kOffer;
      return Progress::kMoved;
    case Phase::kOffer:
      if (!session.have_all(Counter::kPacked, chunk_)) return Progress::kStuck;
      open();
      phase_ = Phase::kOpen;
      return Progress::kMoved;
    case Phase::kOpen:
      if (group_.stream.is_under_way()) return Progress::kStuck;
      publish_outcome();
      phase_ = Phase::kPublished;
      return Progress::kMoved;
    case Phase::kPublished: break;
  }
  if (!session.have_all(Counter::kReduced, chunk_)) return Progress::kStuck;
  conclude();
  session.publish(Counter::kConsumed, chunk_);
  return Progress::kDone;
}

std::vector<int> PeerSettling::awaited() const {
  if (phase_ == Phase::kBegin) return group_.session.holding_slot(chunk_);
  if (phase_ == Phase::kOffer) return group_.session.lacking(Counter::kPacked, chunk_);
  if (phase_ == Phase::kPublished) return group_.session.lacking(Counter::kReduced, chunk_);
  return {};
}

void PeerSettling::make() {
  group_.stream.call([group = shared_group_, n_bytes = slot_bytes_] {
    const Result<PeerMemory*> made = PeerMemory::take(group->stream.gpu(), n_bytes);
    if (made.ok()) group->own = made.value();
    return made.status();
  });
}

void PeerSettling::offer() {
  own_ = group_.stream.status();
  Offer offer{number_of_process(), 0, &group_.stream.gpu(), nullptr, {}, used_gpu(group_)};
  if (group_.own != nullptr) {
    offer.slot_bytes = group_.own->slot_bytes();
    offer.address = group_.own->address();
    offer.handle = group_.own->handle();
  }
  new (group_.session.own_slot(chunk_)) Offer(offer);
  group_.session.publish(Counter::kPacked, chunk_);
}

void PeerSettling::open() {
  std::vector<Offer> offers;
  group_.slot_bytes = slot_bytes_;
  for (int member = 0; member < group_.session.n_members(); ++member) {
    offers.push_back(offer_of(member));
    group_.slot_bytes = std::min<std::size_t>(group_.slot_bytes, offers.back().slot_bytes);
  }
  group_.advice = advice();
  if (group_.slot_bytes == 0) return;
  group_.stream.call([shared = shared_group_, offers = std::move(offers)] {
    PeerGroup& group = *shared;
    const GpuContext& gpu = group.stream.gpu().parts().context;
    for (const Offer& offer : offers) {
      if (offer.process == number_of_process()) {
        if (offer.gpu != &group.stream.gpu()) return Status::internal("a process uses several GPUs");
        group.memory.push_back(offer.address);
        continue;
      }
      CUdeviceptr memory = 0;
      const CUresult outcome = gpu.driver.cuIpcOpenMemHandle(&memory, offer.handle, kIpcLazyPeerAccess);
      if (Status status = gpu.check(outcome, "cuIpcOpenMemHandle"); !status.ok()) return status;
      group.opened.push_back(memory);
      group.memory.push_back(reinterpret_cast<std::byte*>(memory));
    }
    return Status::ok_status();
  });
}

std::string PeerSettling::advice() const {
  std::vector<UsedGpu> used;
  for (int member = 0; member < group_.session.n_members(); ++member) used.push_back(offer_of(member).used);
  return advice_on_sharing(used, static_cast<std::size_t>(group_.session.member()), group_.stream.gpu().name());
}

void PeerSettling::publish_outcome() {
  if (own_.ok()) own_ = group_.stream.status();
  const bool can = own_.ok() && group_.slot_bytes > 0;
  can_use_all(group_.session.member()) = can ? 1 : 0;
  group_.session.publish(Counter::kReduced, chunk_);
}

// One member gets its own reason as the outcome, which is then logged: the lowest one without memory, or else the
// lowest one that failed to map another's memory.
void PeerSettling::conclude() {
  const int n = group_.session.n_members();
  int lowest_without = n;
  int lowest_failed = n;
  for (int member = n - 1; member >= 0; --member) {
    if (offer_of(member).slot_bytes == 0) lowest_without = member;
    if (can_use_all(member) == 0) lowest_failed = member;
  }
  if (lowest_failed == n) {
    group_.usable = Status::ok_status();
  } else if (group_.session.member() == std::min(lowest_without, lowest_without < n ? n : lowest_failed)) {
    group_.usable = own_;
  } else {
    group_.usable = Status::aborted("another rank cannot");
  }
}

}  // namespace ciranda::cuda
