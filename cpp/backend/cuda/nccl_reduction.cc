#include "backend/cuda/nccl_reduction.hpp"

#include <utility>

#include "base/round_up.hpp"

namespace ciranda::cuda {
namespace {

// Those that call/nccl_collectives.hpp lets through.
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

// Plans of other ops have the number of ranks, too.
int divisor(const Plan& plan) { return plan.op == ReduceOp::kAverage ? plan.n_average : 1; }

bool is_scaled_afterwards(const Plan& plan) { return plan.postscale != 1.0 || divisor(plan) > 1; }

// The factors, by a reduction of one input.
ReduceLaunch scale(const Reduction& factors, const std::byte* from, std::byte* to, std::size_t n_bytes) {
  return make_reduce(factors, std::span(&from, 1), to, n_bytes / size_of(factors.dtype));
}

std::size_t most_bytes_to_add(const NcclGroup& group, const Plan& plan) {
  if (plan.collective != Collective::kReducescatter) return group.room_bytes;
  return group.room_bytes / static_cast<std::size_t>(group.mesh.size()) / NcclRoom::kAlignment * NcclRoom::kAlignment;
}

NcclOperation::Does what(Collective collective) {
  using Does = NcclOperation::Does;
  if (collective == Collective::kReducescatter) return Does::kReducescatter;
  return collective == Collective::kReduce ? Does::kReduce : Does::kAllreduce;
}

}  // namespace

NcclReduction::NcclReduction(NcclGroup& group, const Plan& plan)
    : NcclCollective(group, plan, most_bytes_to_add(group, plan)) {}

const std::byte* NcclReduction::whole_parts() const {
  const std::byte* const first = whole(plan().input_for(0), 0, n_bytes());
  for (int member = 1; first != nullptr && member < n_members(); ++member) {
    const InputPieces& part = plan().input_for(member);
    const bool follows = part.n_bytes() == n_bytes() && part.pieces().size() == 1 &&
                         part.at(0).data() == first + static_cast<std::size_t>(member) * n_bytes();
    if (!follows) return nullptr;
  }
  return first;
}

// Parts of other lengths are padded in the room, so all ranks give NCCL as much.
NcclReduction::Range NcclReduction::range_of_parts() const {
  const bool is_even = plan().input_for(n_members() - 1).n_bytes() == plan().n_bytes;
  const std::size_t each =
      is_even && n_bytes() == plan().n_bytes ? n_bytes() : round_up(n_bytes(), NcclRoom::kAlignment);
  const std::byte* const parts = each == n_bytes() ? whole_parts() : nullptr;
  std::byte* to = each == n_bytes() ? whole(plan().output, offset(), n_bytes()) : nullptr;
  const std::size_t begin = static_cast<std::size_t>(self()) * each;
  std::byte* const own = room() + begin;
  // In place NCCL wants it where this rank's part is.
  const auto n = static_cast<std::size_t>(n_members());
  const bool overlaps = parts != nullptr && to != nullptr && parts < to + each && to < parts + n * each;
  if (overlaps && to != parts + begin) to = nullptr;
  return {parts == nullptr ? room() : parts, to == nullptr ? own : to, each};
}

NcclReduction::Range NcclReduction::range() const {
  if (!contributes()) return {room(), room(), n_bytes()};
  if (is_cut()) return range_of_parts();
  const std::byte* const input = whole(plan().input, offset(), n_bytes());
  std::byte* const output = whole(plan().output, offset(), n_bytes());
  return {input == nullptr ? room() : input, output == nullptr ? room() : output, n_bytes()};
}

void NcclReduction::pack(Copies& to) const {
  if (!is_cut()) return add(to, plan().input, offset(), room(), n_bytes());
  for (int member = 0; member < n_members(); ++member) {
    const InputPieces& part = plan().input_for(member);
    std::byte* const there = room() + static_cast<std::size_t>(member) * range().n_bytes;
    add(to, part, offset(), there, n_bytes_of(part.n_bytes()));
  }
}

// The caller's input is not scaled in place, nor are several parts where only one has room.
NcclCollective::Steps NcclReduction::moves() const {
  const Range range = this->range();
  Steps steps;
  if (!contributes()) {
    steps.emplace_back(Zeros{room(), n_bytes()});
  } else if (range.from == room()) {
    Copies packed;
    pack(packed);
    steps.emplace_back(std::move(packed));
  }
  const std::byte* from = range.from;
  if (contributes() && plan().prescale != 1.0) {
    std::byte* const scaled = is_cut() || !has_result() ? room() : range.to;
    steps.emplace_back(
        scale({.dtype = plan().dtype, .prescale = plan().prescale}, from, scaled, n_parts() * range.n_bytes));
    from = scaled;
  }
  const NcclOperation reduction{.does = what(plan().collective),
                                .from = from,
                                .to = range.to,
                                .count = range.n_bytes / size_of(plan().dtype),
                                .type = type_of(plan().dtype),
                                .op = op_of(plan().op),
                                .peer = plan().receivers.empty() ? -1 : plan().receivers.front()};
  steps.emplace_back(Operations{reduction});
  return steps;
}

NcclCollective::Steps NcclReduction::results() const {
  const std::byte* const memory = range().to;
  const std::size_t n_bytes = n_bytes_of(plan().output.n_bytes());
  Steps steps;
  if (!has_result() || n_bytes == 0) return steps;
  if (is_scaled_afterwards(plan())) {
    const Reduction factors{.dtype = plan().dtype,
                            .op = divisor(plan()) > 1 ? ReduceOp::kAverage : ReduceOp::kSum,
                            .postscale = plan().postscale,
                            .n_average = divisor(plan())};
    steps.emplace_back(scale(factors, memory, const_cast<std::byte*>(memory), n_bytes));
  }
  if (whole(plan().output, offset(), n_bytes) != memory) {
    Copies unpacked;
    add(unpacked, memory, plan().output, offset(), n_bytes);
    steps.emplace_back(std::move(unpacked));
  }
  return steps;
}

}  // namespace ciranda::cuda
