#include "backend/cuda/nccl_settling.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace ciranda::cuda {

// By the GPU's thread.
struct NcclSettling::Prepared {
  const Nccl* nccl = nullptr;
  Offer offer{};
};

namespace {

// For a new communicator.
Status take_room(NcclGroup& group) {
  Gpu& gpu = group.stream.gpu();
  const auto stream = NcclStream::of({&group.mesh.peer(group.mesh.rank()), &gpu}, gpu);
  if (!stream.ok()) return stream.status();
  const Result<NcclRoom*> room = NcclRoom::take(gpu, group.room_bytes);
  if (room.ok()) group.shared = std::make_shared<NcclShared>(room.value(), stream.value());
  return room.status();
}

}  // namespace

NcclSettling::NcclSettling(std::shared_ptr<NcclGroup> group, const Place& place, Options options)
    : shared_group_(std::move(group)),
      group_(*shared_group_),
      place_(place),
      options_(std::move(options)),
      prepared_(std::make_shared<Prepared>()),
      key_(NcclShared::key_of(group_.mesh, group_.stream.gpu())) {}

Progress NcclSettling::step() {
  switch (phase_) {
    case Phase::kPrepare:
      if (!is_idle()) return Progress::kStuck;
      prepare();
      phase_ = Phase::kPreparing;
      return Progress::kMoved;
    case Phase::kPreparing:
      if (group_.stream.is_under_way()) return Progress::kStuck;
      tell();
      phase_ = Phase::kTelling;
      return Progress::kMoved;
    case Phase::kTelling:
      if (transfers_->step()) return Progress::kMoved;
      if (!transfers_->is_idle()) return Progress::kStuck;
      if (own_.ok()) own_ = refusal();
      if (!refusal().ok()) {
        std::vector<std::uint8_t> can;
        for (const Offer& offer : offers_) can.push_back(offer.can_use);
        conclude(can);
        return Progress::kDone;
      }
      if (can_share()) {
        group_.communicator()->also_wake(group_.stream.waker());
        group_.usable = Status::ok_status();
        return Progress::kDone;
      }
      make();
      phase_ = Phase::kMaking;
      return Progress::kMoved;
    case Phase::kMaking: {
      if (group_.stream.is_under_way()) return Progress::kStuck;
      own_ = group_.stream.status();
      exchange(static_cast<std::uint8_t>(own_.ok() ? 1 : 0), made_);
      phase_ = Phase::kEnding;
      return Progress::kMoved;
    }
    case Phase::kEnding: break;
  }
  if (transfers_->step()) return Progress::kMoved;
  if (!transfers_->is_idle()) return Progress::kStuck;
  conclude(made_);
  return Progress::kDone;
}

std::vector<int> NcclSettling::awaited() const {
  const bool awaits_ranks = phase_ == Phase::kTelling || phase_ == Phase::kEnding;
  return awaits_ranks ? transfers_->awaited() : std::vector<int>{};
}

std::string NcclSettling::awaited_device() const {
  if (phase_ == Phase::kPrepare) return "on " + group_.stream.name() + ", for NCCL";
  return group_.stream.awaited_device();
}

// To allocate memory or make a communicator may wait for all work of the GPU, and so for the other ranks'.
bool NcclSettling::is_idle() const {
  const auto stream = NcclStream::find({&group_.mesh.peer(group_.mesh.rank()), &group_.stream.gpu()});
  return stream == nullptr || stream->is_idle();
}

Status NcclSettling::objection() const {
  const Mesh& mesh = group_.mesh;
  for (int other = 0; other < mesh.size() && !options_.may_leave_the_host; ++other) {
    if (mesh.peer(other).host == mesh.peer(mesh.rank()).host) continue;
    return Status::internal(
        "CIRANDA_WIRE wants bytes between hosts to be authenticated, and NCCL authenticates and encrypts nothing. "
        "Where "
        "the network can be trusted, set CIRANDA_NCCL_BETWEEN_HOSTS=1");
  }
  return Status::ok_status();
}

void NcclSettling::prepare() {
  group_.stream.call([group = shared_group_, prepared = prepared_, index = place_.index, named = options_.nccl,
                      key = key_, objection = objection()] {
    if (!objection.ok()) return objection;
    const Result<const Nccl*> nccl = Nccl::load(named);
    if (!nccl.ok()) return nccl.status();
    Gpu& gpu = group->stream.gpu();
    const GpuContext& context = gpu.parts().context;
    CUdevice device = 0;
    CUresult told = context.driver.cuDeviceGet(&device, index);
    if (told == CUresult::kSuccess) told = context.driver.cuDeviceGetUuid(&prepared->offer.gpu, device);
    if (Status status = context.check(told, "cuDeviceGetUuid"); !status.ok()) return status;
    group->shared = NcclShared::find(key);
    if (group->shared != nullptr) prepared->offer.known = group->shared->id;
    if (Status status = group->shared == nullptr ? take_room(*group) : Status::ok_status(); !status.ok()) return status;
    if (group->mesh.rank() == 0) {
      const ncclResult_t made = nccl.value()->ncclGetUniqueId(&prepared->offer.id);
      if (Status status = nccl.value()->check(made, "ncclGetUniqueId"); !status.ok()) return status;
    }
    prepared->nccl = nccl.value();
    return Status::ok_status();
  });
}

template <typename Told>
void NcclSettling::exchange(const Told& sent, std::vector<Told>& told) {
  const auto rank = static_cast<std::size_t>(group_.mesh.rank());
  told.resize(static_cast<std::size_t>(group_.mesh.size()));
  told[rank] = sent;
  sent_ = InputPieces(std::as_bytes(std::span(&told[rank], 1)).data(), sizeof(Told));
  received_.clear();
  for (Told& from : told) received_.emplace_back(std::as_writable_bytes(std::span(&from, 1)).data(), sizeof(Told));
  transfers_.emplace(group_.mesh);
  for (std::size_t peer = 0; peer < told.size(); ++peer) {
    if (peer == rank) continue;
    transfers_->receive(static_cast<int>(peer), received_[peer], 0, sizeof(Told));
    transfers_->send(static_cast<int>(peer), sent_, 0, sizeof(Told));
  }
}

void NcclSettling::tell() {
  own_ = group_.stream.status();
  Offer offer = prepared_->offer;
  offer.can_use = own_.ok() ? 1 : 0;
  offer.version = own_.ok() ? prepared_->nccl->version() : 0;
  exchange(offer, offers_);
}

Status NcclSettling::refusal() const {
  const auto lowest_without = std::ranges::find(offers_, 0, &Offer::can_use);
  if (lowest_without != offers_.end()) return Status::aborted("another rank has none");
  for (auto one = offers_.begin(); one != offers_.end(); ++one) {
    const std::string rank = std::to_string(one - offers_.begin());
    if (one->version != offers_.front().version) {
      return Status::internal("rank 0 has NCCL " + std::to_string(offers_.front().version) + ", rank " + rank + " " +
                              std::to_string(one->version));
    }
    for (auto other = offers_.begin(); other != one; ++other) {
      if (other->gpu.bytes == one->gpu.bytes) {
        return Status::internal("ranks " + std::to_string(other - offers_.begin()) + " and " + rank +
                                " share a GPU, and NCCL wants one for each: torch.cuda.set_device(hvd.local_rank())?");
      }
    }
  }
  return Status::ok_status();
}

bool NcclSettling::can_share() const {
  const auto& first = offers_.front().known.internal;
  return first.front() != '\0' &&
         std::ranges::all_of(offers_, [&](const Offer& offer) { return offer.known.internal == first; });
}

void NcclSettling::make() {
  const int rank = group_.mesh.rank();
  group_.stream.call(
      [group = shared_group_, prepared = prepared_, id = offers_.front().id, rank, most = options_.most] {
        Gpu& gpu = group->stream.gpu();
        if (group->shared->communicator != nullptr) {  // which another member cannot share
          if (Status status = take_room(*group); !status.ok()) return status;
        }
        auto begun = NcclCommunicator::begin(*prepared->nccl, gpu, id, group->mesh.size(), rank, group->stream.waker());
        if (!begun.ok()) return begun.status();
        group->shared->communicator = std::move(begun).value();
        group->shared->id = id;
        if (group->stream.was_aborted()) NcclCommunicator::abort_all(gpu);
        return group->shared->communicator->await_made(most);
      });
}

// Of those who cannot, the lowest says why; where all see the same reason, rank 0.
void NcclSettling::conclude(const std::vector<std::uint8_t>& can) {
  const auto lowest = std::ranges::find(can, 0);
  const bool all_can = lowest == can.end();
  const auto teller = all_can ? 0 : static_cast<int>(lowest - can.begin());
  if (own_.ok() && all_can) {
    group_.usable = Status::ok_status();
    NcclShared::keep(key_, group_.shared);
  } else if (group_.mesh.rank() == teller) {
    group_.usable = Status::internal(own_.message());
  } else {
    group_.usable = Status::aborted("another rank cannot");
  }
}

}  // namespace ciranda::cuda
