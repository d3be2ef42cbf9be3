#include "backend/cuda/nccl_allreduce.hpp"

#include <algorithm>
#include <utility>

#include "backend/cuda/kernels/launches.hpp"

namespace ciranda::cuda {
namespace {

// Those that agree/ways.cc lets through.
ncclDataType_t type_of(DataType dtype) {
  switch (dtype) {
    case DataType::kInt8: return ncclDataType_t::kInt8;
    case DataType::kInt32: return ncclDataType_t::kInt32;
    case DataType::kUInt32: return ncclDataType_t::kUint32;
    case DataType::kInt64: return ncclDataType_t::kInt64;
    case DataType::kUInt64: return ncclDataType_t::kUint64;
    case DataType::kFloat16: return ncclDataType_t::kFloat16;
    case DataType::kBFloat16: return ncclDataType_t::kBfloat16;
    case DataType::kFloat32: return ncclDataType_t::kFloat32;
    case DataType::kFloat64: return ncclDataType_t::kFloat64;
    default: return ncclDataType_t::kUint8;
  }
}

ncclRedOp_t op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProduct: return ncclRedOp_t::kProd;
    case ReduceOp::kMin: return ncclRedOp_t::kMin;
    case ReduceOp::kMax: return ncclRedOp_t::kMax;
    default: return ncclRedOp_t::kSum;  // of an average, too
  }
}

// As kernels and NCCL read and write it fastest.
bool is_aligned(const std::byte* memory) { return reinterpret_cast<std::uintptr_t>(memory) % 16 == 0; }

// Plans of other ops have the number of ranks, too.
int divisor(const Plan& plan) { return plan.op == ReduceOp::kAverage ? plan.n_average : 1; }
bool is_scaled_afterwards(const Plan& plan) { return plan.postscale != 1.0 || divisor(plan) > 1; }

// The factors, by a reduction of one input.
ReduceLaunch scale(const Plan& plan, const ReduceFactors& factors, const std::byte* from, std::byte* to,
                   std::size_t n_bytes) {
  const ReduceOp op = factors.n_average > 1 ? ReduceOp::kAverage : ReduceOp::kSum;
  return make_reduce(plan.dtype, op, factors, std::span(&from, 1), to, n_bytes / size_of(plan.dtype));
}

}  // namespace

NcclAllreduce::NcclAllreduce(NcclGroup& group, const Plan& plan)
    : group_(group), plan_(plan), n_bytes_(std::min(plan.n_bytes, group.room_bytes)) {}

Progress NcclAllreduce::step() {
  switch (phase_) {
    case Phase::kBegin:
      launch();
      phase_ = Phase::kLaunched;
      return Progress::kMoved;
    case Phase::kLaunched:
      if (!has_ended()) return Progress::kStuck;
      if (!is_unfinished()) return end_chunk();
      finish();
      phase_ = Phase::kFinishing;
      return Progress::kMoved;
    case Phase::kFinishing: break;
  }
  return has_ended() ? end_chunk() : Progress::kStuck;
}

std::string NcclAllreduce::awaited_device() const {
  return group_.stream.is_under_way() ? "on " + group_.stream.name() + ", for NCCL" : "";
}

// Whether the work on the GPU has ended well.
bool NcclAllreduce::has_ended() {
  if (!status_.ok()) return false;
  if (group_.stream.is_under_way()) {
    status_ = group_.communicator->status();
    return false;
  }
  status_ = group_.stream.status();
  if (status_.ok()) status_ = group_.communicator->look();
  return status_.ok();
}

const std::byte* NcclAllreduce::from() const {
  const std::byte* const whole = plan_.input.contiguous(offset_, n_bytes_).data();
  return whole != nullptr && is_aligned(whole) ? whole : group_.room->address();
}

std::byte* NcclAllreduce::to() const {
  std::byte* const whole = plan_.output.contiguous(offset_, n_bytes_).data();
  return whole != nullptr && is_aligned(whole) ? whole : group_.room->address();
}

bool NcclAllreduce::is_unfinished() const { return is_scaled_afterwards(plan_) || to() == group_.room->address(); }

void NcclAllreduce::launch() {
  std::vector<Piece> packed;
  if (from() == group_.room->address()) {
    plan_.input.for_range(offset_, n_bytes_, [&](std::span<const std::byte> part, std::size_t at) {
      packed.push_back({part.data(), group_.room->address() + at, part.size(), 0});
    });
  }
  const std::vector<DeviceEventPtr> after = offset_ == 0 ? plan_.after : std::vector<DeviceEventPtr>{};
  const bool is_scaled = plan_.prescale != 1.0;
  const ReduceLaunch scaled = scale(plan_, {.prescale = plan_.prescale}, from(), to(), n_bytes_);
  group_.stream.run(group_.room->stream(), plan_.holds,
                    [after, packed = std::move(packed), is_scaled, scaled, communicator = group_.communicator,
                     from = from(), to = to(), count = n_bytes_ / size_of(plan_.dtype), type = type_of(plan_.dtype),
                     op = op_of(plan_.op)](PeerStream::Tasks& tasks) {
                      for (const DeviceEventPtr& event : after) {
                        if (Status status = tasks.wait_for(*event); !status.ok()) return status;
                      }
                      if (Status status = tasks.copy(packed); !status.ok()) return status;
                      if (is_scaled) {
                        if (Status status = tasks.reduce(scaled); !status.ok()) return status;
                      }
                      return communicator->allreduce(is_scaled ? to : from, to, count, type, op, tasks.stream);
                    });
}

void NcclAllreduce::finish() {
  std::vector<Piece> unpacked;
  if (to() == group_.room->address()) {
    plan_.output.for_range(offset_, n_bytes_, [&](std::span<std::byte> part, std::size_t at) {
      unpacked.push_back({group_.room->address() + at, part.data(), part.size(), 0});
    });
  }
  const bool is_scaled = is_scaled_afterwards(plan_);
  const ReduceLaunch scaled =
      scale(plan_, {.postscale = plan_.postscale, .n_average = divisor(plan_)}, to(), to(), n_bytes_);
  group_.stream.run(group_.room->stream(), plan_.holds,
                    [is_scaled, scaled, unpacked = std::move(unpacked)](PeerStream::Tasks& tasks) {
                      Status status = is_scaled ? tasks.reduce(scaled) : Status::ok_status();
                      return status.ok() ? tasks.copy(unpacked) : status;
                    });
}

Progress NcclAllreduce::end_chunk() {
  offset_ += n_bytes_;
  if (offset_ == plan_.n_bytes) return Progress::kDone;
  n_bytes_ = std::min(plan_.n_bytes - offset_, group_.room_bytes);
  phase_ = Phase::kBegin;
  return Progress::kMoved;
}

}  // namespace ciranda::cuda
