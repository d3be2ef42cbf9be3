#include <algorithm>
#include <array>
#include <vector>

#include "base/round_up.hpp"
#include "collective/launch.hpp"
#include "collective/pair_transfers.hpp"
#include "collective/slices.hpp"
#include "collective/transfer_order.hpp"
#include "kernels/bfloat16_wire.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kDepth = TransferOrder::kDepth;

// A block is cut into slices, one for each rank of the smallest host, and a slice into shares, one for each host.
// Neighbours are the ranks of this host; counterparts are the ranks with the same slice on other hosts. Ranks of larger
// hosts without a slice only contribute their input and get the result. A block's four rounds:
//   neighbours exchange slices;     combine: each has the host's sums of its slice, one for each of its parts
//   counterparts exchange shares;   finish: each has the result of its share of its slice
//   counterparts exchange results;  share: each has the result of its slice
//   neighbours exchange results
class ByHosts final : public RunningCollective {
 public:
  explicit ByHosts(const Launch& launch)
      : plan_(launch.plan),
        reductions_(launch.plan),
        of_sums_(reductions_.of_part),
        is_rounded_(launch.rounding.is_on()),
        hosts_(launch.host_parts),
        n_hosts_(static_cast<int>(hosts_.hosts.size())),
        host_(host_of(launch.mesh.rank())),
        n_neighbours_(range(host_).size()),
        own_(launch.mesh.rank() - range(host_).begin),
        block_bytes_(launch.segment_bytes * static_cast<std::size_t>(hosts_.fewest_ranks)),
        order_{divide_up(plan_.n_bytes, block_bytes_)},
        transfers_(launch.mesh) {
    of_sums_.prescale = 1.0;
    for (const auto& piece : plan_.output.pieces()) results_.add(piece.data(), piece.size());
    for (int host = 0; own_ < hosts_.fewest_ranks && host < n_hosts_; ++host) {
      if (host != host_) counterparts_.push_back(host);
    }
    for (int place = 0; place < n_neighbours_; ++place) {
      if (place != own_) neighbours_.push_back(place);
    }
    for (const int host : counterparts_) {
      if (is_rounded_) transfers_.enable_rounding(counterpart(host));
    }
    share_out(launch.scratch);
    for (std::size_t block = 0; block < std::min(kDepth, order_.n_blocks); ++block) exchange_slices(block);
  }

  Progress step() override {
    bool moved = transfers_.step();
    while (advance()) moved = true;
    if (n_shared_ == order_.n_blocks && transfers_.is_idle()) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kStuck;
  }

  std::vector<int> awaited() const override { return transfers_.awaited(); }

 private:
  struct Stage {
    std::vector<std::span<std::byte>> slices;  // this rank's, by neighbour
    std::vector<OutputPieces> slice_pieces;
    std::vector<std::span<std::byte>> sums;    // of the host's parts, of this rank's slice
    std::vector<InputPieces> sum_pieces;       // to send to each host: its share of all sums
    std::vector<std::span<std::byte>> shares;  // this rank's share of each host's sums, one after the other
    std::vector<OutputPieces> share_pieces;
    std::vector<std::span<std::byte>> between;  // the results of all steps but the last
    std::span<std::byte> result;                // used if the output is in several pieces
    InputPieces result_pieces;                  // where the result is
  };

  Stage& stage(std::size_t block) { return stages_[block % kDepth]; }
  const RankRun& range(int host) const { return hosts_.hosts[static_cast<std::size_t>(host)]; }
  std::size_t n_parts(int host) const { return hosts_.parts[static_cast<std::size_t>(host)].size(); }
  int host_of(int rank) const {
    int host = 0;
    while (range(host).end <= rank) ++host;
    return host;
  }
  int neighbour(int place) const { return range(host_).begin + place; }
  int counterpart(int host) const { return range(host).begin + own_; }

  // All offsets are relative to the whole plan.
  Slice block_range(std::size_t block) const { return block_of(plan_.n_bytes, block_bytes_, block); }
  Slice slice(std::size_t block, int place) const {
    const Slice whole = block_range(block);
    if (place >= hosts_.fewest_ranks) return {whole.offset + whole.n_bytes, 0};
    return slice_of(whole, hosts_.fewest_ranks, place);
  }
  Slice share(std::size_t block, int host) const { return slice_of(slice(block, own_), n_hosts_, host); }

  void share_out(Scratch& scratch) {
    const std::size_t slice_bytes = slice_of(block_range(0).n_bytes, hosts_.fewest_ranks, 0).n_bytes;
    const std::size_t share_bytes = slice_of(slice_bytes, n_hosts_, 0).n_bytes;
    const std::size_t n_slices = static_cast<std::size_t>(n_neighbours_) + n_parts(host_);
    const std::size_t n_shares = hosts_.n_parts + hosts_.steps.size();
    std::span<std::byte> memory = scratch.take(kDepth * (n_slices * slice_bytes + n_shares * share_bytes));
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
      for (std::size_t part = 0; part < n_parts(host_); ++part) stage.sums.push_back(take(slice_bytes));
      stage.sum_pieces.resize(static_cast<std::size_t>(n_hosts_));
      for (int host = 0; host < n_hosts_; ++host) {
        stage.shares.push_back(take(n_parts(host) * share_bytes));
        stage.share_pieces.emplace_back(stage.shares.back().data(), stage.shares.back().size());
      }
      for (std::size_t step = 1; step < hosts_.steps.size(); ++step) stage.between.push_back(take(share_bytes));
      stage.result = take(share_bytes);
    }
  }

  // Advances one round by one block at most. Both sides must queue in the same order (TransferOrder), so each round
  // waits for the one before it in that order, even if its data has already arrived.
  bool advance() {
    if (may_share(n_shared_)) {
      share_with_neighbours(n_shared_++);
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
    if (block == order_.n_blocks || !have_all_neighbours(TransferOrder::first(block))) return false;
    return block < kDepth || (n_finished_ > block - kDepth && have_all_taken(TransferOrder::first(block - kDepth)));
  }

  void combine(std::size_t block) {
    const Slice own = slice(block, own_);
    Stage& at = stage(block);
    inputs_.clear();
    for (int place = 0; place < n_neighbours_; ++place) {
      const auto arrived = at.slices[static_cast<std::size_t>(place)].first(own.n_bytes);
      inputs_.push_back(place == own_ ? contiguous_or_gathered(plan_.input, own.offset, arrived) : arrived.data());
    }
    for (std::size_t part = 0; part < n_parts(host_); ++part) {
      const RankRun& of = hosts_.parts[static_cast<std::size_t>(host_)][part];
      const auto inputs = std::span(inputs_).subspan(static_cast<std::size_t>(of.begin - range(host_).begin),
                                                     static_cast<std::size_t>(of.size()));
      kernels::reduce(reductions_.of_part, inputs, at.sums[part].first(own.n_bytes));
      if (is_rounded_) kernels::round_to_bfloat16(at.sums[part].first(own.n_bytes));
    }
    const std::size_t n_own = share(block, host_).n_bytes;
    for (const int host : counterparts_) {
      const Slice theirs = share(block, host);
      InputPieces& pieces = at.sum_pieces[static_cast<std::size_t>(host)];
      pieces = {};
      for (const auto& sum : at.sums) pieces.add(sum.data() + (theirs.offset - own.offset), theirs.n_bytes);
      transfers_.send(counterpart(host), pieces, 0, pieces.n_bytes());
      transfers_.receive(counterpart(host), at.share_pieces[static_cast<std::size_t>(host)], 0, n_parts(host) * n_own);
    }
  }

  bool may_finish(std::size_t block) const {
    if (block == n_combined_ || (block + 1 == n_combined_ && n_combined_ < order_.n_blocks)) return false;
    return have_all_counterparts(TransferOrder::first(block)) &&
           (block < kDepth || have_all_taken(order_.second(block - kDepth)));
  }

  void finish(std::size_t block) {
    const Slice own = share(block, host_);
    Stage& at = stage(block);
    inputs_.clear();
    for (int host = 0; host < n_hosts_; ++host) {
      for (std::size_t part = 0; part < n_parts(host); ++part) {
        inputs_.push_back(host == host_ ? at.sums[part].data() + (own.offset - slice(block, own_).offset)
                                        : at.shares[static_cast<std::size_t>(host)].data() + part * own.n_bytes);
      }
    }
    const auto in_place = plan_.output.contiguous(own.offset, own.n_bytes);
    const auto result = in_place.empty() ? at.result.first(own.n_bytes) : in_place;
    for (std::size_t step = 0; step < hosts_.steps.size(); ++step) {
      const bool is_last = step + 1 == hosts_.steps.size();
      const auto out = is_last ? result : at.between[step].first(own.n_bytes);
      step_inputs_.clear();
      for (const std::size_t place : hosts_.steps[step].inputs) step_inputs_.push_back(inputs_[place]);
      kernels::reduce(is_last ? reductions_.of_all : of_sums_, step_inputs_, out);
      inputs_.push_back(out.data());
    }
    if (is_rounded_) kernels::round_to_bfloat16(result);
    if (in_place.empty()) scatter(plan_.output, own.offset, result);
    at.result_pieces = InputPieces(result.data(), result.size());
    for (const int host : counterparts_) {
      const Slice theirs = share(block, host);
      transfers_.send(counterpart(host), at.result_pieces, 0, own.n_bytes);
      transfers_.receive(counterpart(host), plan_.output, theirs.offset, theirs.n_bytes);
    }
  }

  bool may_share(std::size_t block) const { return block < n_finished_ && have_all_counterparts(order_.second(block)); }

  void share_with_neighbours(std::size_t block) {
    const Slice own = slice(block, own_);
    for (const int place : neighbours_) {
      const Slice theirs = slice(block, place);
      transfers_.send(neighbour(place), results_, own.offset, own.n_bytes);
      transfers_.receive(neighbour(place), plan_.output, theirs.offset, theirs.n_bytes);
    }
    if (block + kDepth < order_.n_blocks) exchange_slices(block + kDepth);
  }

  bool have_all_neighbours(std::size_t index) const {
    return std::all_of(neighbours_.begin(), neighbours_.end(),
                       [&](int place) { return transfers_.n_received(neighbour(place)) > index; });
  }
  bool have_all_counterparts(std::size_t index) const {
    return std::all_of(counterparts_.begin(), counterparts_.end(),
                       [&](int host) { return transfers_.n_received(counterpart(host)) > index; });
  }
  // True if the channels have taken the data sent to all counterparts.
  bool have_all_taken(std::size_t index) const {
    return std::all_of(counterparts_.begin(), counterparts_.end(),
                       [&](int host) { return transfers_.n_sent(counterpart(host)) > index; });
  }

  const Plan& plan_;
  InParts reductions_;
  Reduction of_sums_;  // of partial sums to a partial sum
  bool is_rounded_;
  const HostParts& hosts_;
  int n_hosts_;
  int host_;
  int n_neighbours_;
  int own_;  // this rank's index among its neighbours
  std::size_t block_bytes_;
  TransferOrder order_;
  PairTransfers transfers_;
  std::vector<int> neighbours_;    // places, without this rank's own
  std::vector<int> counterparts_;  // hosts, without this rank's own
  std::array<Stage, kDepth> stages_;
  InputPieces results_;  // the plan's output, to send from
  std::vector<const std::byte*> inputs_;
  std::vector<const std::byte*> step_inputs_;
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

std::unique_ptr<RunningCollective> direct_allreduce_by_hosts(const Launch& launch) {
  return std::make_unique<ByHosts>(launch);
}

}  // namespace ciranda
