#include <algorithm>
#include <array>
#include <vector>

#include "collective/direct_allreduce.hpp"
#include "collective/pair_transfers.hpp"
#include "collective/slices.hpp"
#include "collective/two_rounds.hpp"
#include "kernels/bfloat16_wire.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kDepth = TwoRounds::kDepth;

// A block is cut into a slice for each rank of a host, and that into a part for each host. Neighbours are the ranks of
// this host, counterparts those that have the same slice on other hosts. A block's four rounds:
//   neighbours exchange slices;     combine: each has the host's sum of its slice
//   counterparts exchange parts;    finish: each has the result of its part of its slice
//   counterparts exchange results;  share: each has the result of its slice
//   neighbours exchange results
class ByHosts final : public RunningCollective {
 public:
  ByHosts(Mesh& mesh, const Plan& plan, const kernels::Reduction& reduction, int n_neighbours,
          std::size_t segment_bytes, Scratch& scratch, const Rounding& rounding)
      : plan_(plan),
        reductions_(reduction),
        is_rounded_(rounding.is_on()),
        n_neighbours_(n_neighbours),
        n_hosts_(mesh.size() / n_neighbours),
        host_(mesh.rank() / n_neighbours),
        own_(mesh.rank() % n_neighbours),
        block_bytes_(segment_bytes * static_cast<std::size_t>(n_neighbours)),
        rounds_{(plan.n_bytes + block_bytes_ - 1) / block_bytes_},
        transfers_(mesh),
        inputs_(static_cast<std::size_t>(std::max(n_neighbours_, n_hosts_))) {
    for (const auto& piece : plan.output.pieces()) results_.add(piece.data(), piece.size());
    for (int host = 0; host < n_hosts_; ++host) {
      if (host != host_) counterparts_.push_back(host);
    }
    for (int place = 0; place < n_neighbours_; ++place) {
      if (place != own_) neighbours_.push_back(place);
    }
    for (const int host : counterparts_) {
      if (is_rounded_) transfers_.round_for(counterpart(host));
    }
    share_out(scratch);
    for (std::size_t block = 0; block < std::min(kDepth, rounds_.n_blocks); ++block) exchange_slices(block);
  }

  Progress step() override {
    bool moved = transfers_.step();
    while (advance()) moved = true;
    if (n_shared_ == rounds_.n_blocks && transfers_.is_idle()) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kStuck;
  }

  std::vector<int> awaited() const override { return transfers_.awaited(); }

 private:
  struct Stage {
    std::vector<std::span<std::byte>> slices;  // this rank's, by neighbour
    std::vector<OutputPieces> slice_pieces;
    std::span<std::byte> sum;  // of the host, of this rank's slice
    InputPieces sum_pieces;
    std::vector<std::span<std::byte>> parts;  // this rank's, by host
    std::vector<OutputPieces> part_pieces;
    std::span<std::byte> result;  // used where the output is in several pieces
    InputPieces result_pieces;    // where the result is
  };

  Stage& stage(std::size_t block) { return stages_[block % kDepth]; }
  int neighbour(int place) const { return host_ * n_neighbours_ + place; }
  int counterpart(int host) const { return host * n_neighbours_ + own_; }

  // All relative to the whole plan.
  Slice block_range(std::size_t block) const {
    const std::size_t begin = std::min(block * block_bytes_, plan_.n_bytes);
    return {begin, std::min(block_bytes_, plan_.n_bytes - begin)};
  }
  Slice slice(std::size_t block, int place) const { return cut(block_range(block), n_neighbours_, place); }
  Slice part(std::size_t block, int host) const { return cut(slice(block, own_), n_hosts_, host); }
  static Slice cut(const Slice& whole, int n, int index) {
    const Slice cut = slice_of(whole.n_bytes, n, index);
    return {whole.offset + cut.offset, cut.n_bytes};
  }

  void share_out(Scratch& scratch) {
    const std::size_t slice_bytes = slice_of(block_range(0).n_bytes, n_neighbours_, 0).n_bytes;
    const std::size_t part_bytes = slice_of(slice_bytes, n_hosts_, 0).n_bytes;
    const std::size_t n_slices = static_cast<std::size_t>(n_neighbours_) + 1;
    const std::size_t n_parts = static_cast<std::size_t>(n_hosts_) + 1;
    std::span<std::byte> memory = scratch.take(kDepth * (n_slices * slice_bytes + n_parts * part_bytes));
    const auto take = [&memory](std::size_t n_bytes) {
      const auto taken = memory.first(n_bytes);
      memory = memory.subspan(n_bytes);
      return taken;
    };
    for (Stage& stage : stages_) {
      for (int place = 0; place < n_neighbours_; ++place) {
        stage.slices.push_back(take(slice_bytes));
        stage.slice_pieces.emplace_back(stage.slices.back().data(), slice_bytes);
      }
      stage.sum = take(slice_bytes);
      stage.sum_pieces = InputPieces(stage.sum.data(), slice_bytes);
      for (int host = 0; host < n_hosts_; ++host) {
        stage.parts.push_back(take(part_bytes));
        stage.part_pieces.emplace_back(stage.parts.back().data(), part_bytes);
      }
      stage.result = take(part_bytes);
    }
  }

  // At most one block further in one of the rounds. The order of the queues (TwoRounds) must be the same on both sides:
  // each round therefore waits for the one before it in that order, whatever has come already.
  bool advance() {
    if (may_share(n_shared_)) {
      share(n_shared_++);
    } else if (may_finish(n_finished_)) {
      finish(n_finished_++);
    } else if (may_combine(n_combined_)) {
      combine(n_combined_++);
    } else {
      return false;
    }
    return true;
  }

  void exchange_slices(std::size_t block) {
    const std::size_t n_own = slice(block, own_).n_bytes;
    for (const int place : neighbours_) {
      const Slice theirs = slice(block, place);
      transfers_.send(neighbour(place), plan_.input, theirs.offset, theirs.n_bytes);
      transfers_.receive(neighbour(place), stage(block).slice_pieces[static_cast<std::size_t>(place)], 0, n_own);
    }
  }

  bool may_combine(std::size_t block) const {
    if (block == rounds_.n_blocks || !have_all_neighbours(TwoRounds::first(block))) return false;
    return block < kDepth || (n_finished_ > block - kDepth && have_all_taken(TwoRounds::first(block - kDepth)));
  }

  void combine(std::size_t block) {
    const Slice own = slice(block, own_);
    Stage& at = stage(block);
    for (int place = 0; place < n_neighbours_; ++place) {
      const auto arrived = at.slices[static_cast<std::size_t>(place)].first(own.n_bytes);
      inputs_[static_cast<std::size_t>(place)] =
          place == own_ ? contiguous_or_gathered(plan_.input, own.offset, arrived) : arrived.data();
    }
    reduce(reductions_.of_part, n_neighbours_, at.sum.first(own.n_bytes));
    for (const int host : counterparts_) {
      const Slice theirs = part(block, host);
      transfers_.send(counterpart(host), at.sum_pieces, theirs.offset - own.offset, theirs.n_bytes);
      transfers_.receive(counterpart(host), at.part_pieces[static_cast<std::size_t>(host)], 0,
                         part(block, host_).n_bytes);
    }
  }

  bool may_finish(std::size_t block) const {
    if (block == n_combined_ || (block + 1 == n_combined_ && n_combined_ < rounds_.n_blocks)) return false;
    return have_all_counterparts(TwoRounds::first(block)) &&
           (block < kDepth || have_all_taken(rounds_.second(block - kDepth)));
  }

  void finish(std::size_t block) {
    const Slice own = part(block, host_);
    Stage& at = stage(block);
    for (int host = 0; host < n_hosts_; ++host) {
      inputs_[static_cast<std::size_t>(host)] = host == host_ ? at.sum.data() + (own.offset - slice(block, own_).offset)
                                                              : at.parts[static_cast<std::size_t>(host)].data();
    }
    const auto in_place = plan_.output.contiguous(own.offset, own.n_bytes);
    const auto result = in_place.empty() ? at.result.first(own.n_bytes) : in_place;
    reduce(reductions_.of_all, n_hosts_, result);
    if (in_place.empty()) scatter(plan_.output, own.offset, result);
    at.result_pieces = InputPieces(result.data(), result.size());
    for (const int host : counterparts_) {
      const Slice theirs = part(block, host);
      transfers_.send(counterpart(host), at.result_pieces, 0, own.n_bytes);
      transfers_.receive(counterpart(host), plan_.output, theirs.offset, theirs.n_bytes);
    }
  }

  bool may_share(std::size_t block) const {
    return block < n_finished_ && have_all_counterparts(rounds_.second(block));
  }

  void share(std::size_t block) {
    const Slice own = slice(block, own_);
    for (const int place : neighbours_) {
      const Slice theirs = slice(block, place);
      transfers_.send(neighbour(place), results_, own.offset, own.n_bytes);
      transfers_.receive(neighbour(place), plan_.output, theirs.offset, theirs.n_bytes);
    }
    if (block + kDepth < rounds_.n_blocks) exchange_slices(block + kDepth);
  }

  bool have_all_neighbours(std::size_t index) const {
    return std::all_of(neighbours_.begin(), neighbours_.end(),
                       [&](int place) { return transfers_.n_received(neighbour(place)) > index; });
  }
  bool have_all_counterparts(std::size_t index) const {
    return std::all_of(counterparts_.begin(), counterparts_.end(),
                       [&](int host) { return transfers_.n_received(counterpart(host)) > index; });
  }
  // What the counterparts were sent has left.
  bool have_all_taken(std::size_t index) const {
    return std::all_of(counterparts_.begin(), counterparts_.end(),
                       [&](int host) { return transfers_.n_sent(counterpart(host)) > index; });
  }

  void reduce(const kernels::Reduction& reduction, int n_inputs, std::span<std::byte> result) const {
    if (result.empty()) return;
    const std::size_t count = result.size() / size_of(reduction.dtype);
    kernels::reduce(reduction, std::span(inputs_).first(static_cast<std::size_t>(n_inputs)), result.data(), count);
    if (is_rounded_) kernels::round_to_bfloat16(result.data(), result.data(), count);
  }

  const Plan& plan_;
  InParts reductions_;  // a part is a host's
  bool is_rounded_;
  int n_neighbours_;
  int n_hosts_;
  int host_;
  int own_;  // this rank's place among its neighbours
  std::size_t block_bytes_;
  TwoRounds rounds_;
  PairTransfers transfers_;
  std::vector<int> neighbours_;    // places, without this rank's own
  std::vector<int> counterparts_;  // hosts, without this rank's own
  std::array<Stage, kDepth> stages_;
  InputPieces results_;  // the plan's output, to send from
  std::vector<const std::byte*> inputs_;
  std::size_t n_combined_ = 0;
  std::size_t n_finished_ = 0;
  std::size_t n_shared_ = 0;
};

}  // namespace

bool combines_in_parts(const Plan& plan) {
  if (!plan.contributors.empty() || !plan.receivers.empty() || !plan.weights.empty()) return false;
  switch (info(plan.dtype).type_class) {
    case TypeClass::kFloating: return plan.dtype != DataType::kFloat16 && plan.dtype != DataType::kBFloat16;
    case TypeClass::kComplex: return true;
    case TypeClass::kBoolean:
    case TypeClass::kUnsigned:
    case TypeClass::kSigned: break;
  }
  return plan.op != ReduceOp::kAverage && plan.prescale == 1.0 && plan.postscale == 1.0;
}

std::unique_ptr<RunningCollective> direct_allreduce_by_hosts(Mesh& mesh, const Plan& plan,
                                                             const kernels::Reduction& reduction, int n_neighbours,
                                                             std::size_t segment_bytes, Scratch& scratch,
                                                             const Rounding& rounding) {
  return std::make_unique<ByHosts>(mesh, plan, reduction, n_neighbours, segment_bytes, scratch, rounding);
}

}  // namespace ciranda
