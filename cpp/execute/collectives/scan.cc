// Scan: each rank gets the result of an allreduce among the ranks up to itself.
//
// As in a two-shot allreduce, inputs are cut into one share for each rank that takes part. Each rank receives its share
// of every input, computes its share of every rank's result, and sends it to that rank. Both phases are exchanges. In
// the memory of devices, the backend reads the inputs of all ranks.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "execute/collectives/functions.hpp"

namespace ciranda {
namespace {

// The scan of tensors of one type.
class Scan {
 public:
  // `whole`: the reduction of these tensors. `members`: those that take part, ascending.
  Scan(Plan whole, std::vector<int> members, bool divides_by_all, const Mesh& mesh)
      : whole_(std::move(whole)),
        members_(std::move(members)),
        divides_by_all_(divides_by_all),
        n_ranks_(static_cast<std::size_t>(mesh.size())),
        counts_(even_splits(static_cast<std::int64_t>(whole_.n_bytes / size_of(whole_.dtype)),
                            static_cast<int>(members_.size()))) {
    const auto self = std::find(members_.begin(), members_.end(), mesh.rank());
    if (self != members_.end()) n_own_ = n_bytes_at(static_cast<std::size_t>(self - members_.begin()));
    takes_part_ = self != members_.end();
    shares_.resize(n_own_ * members_.size());
  }

  // The first phase: this rank receives its share of every input.
  Plan spread() {
    Plan plan = exchange();
    for (std::size_t at = 0; takes_part_ && at < members_.size(); ++at) {
      plan.input_by_rank[rank_at(at)] = whole_.input.part(begin_at(at), n_bytes_at(at));
      plan.output_by_rank[rank_at(at)].add(share(at), n_own_);
    }
    return plan;
  }

  // From the last member to the first: each result overwrites the input of its member, which the results of earlier
  // members do not need.
  void combine() {
    std::vector<const std::byte*> inputs;
    for (std::size_t at = 0; at < members_.size(); ++at) inputs.push_back(share(at));
    Reduction reduction = whole_;
    for (std::size_t at = members_.size(); at-- > 0;) {
      reduction.n_average = 1 + (divides_by_all_ ? members_[at] : static_cast<int>(at));
      kernels::reduce(reduction, std::span(inputs).first(at + 1), {share(at), n_own_});
    }
  }

  // The second phase: sends every rank this rank's share of that rank's result.
  Plan collect() {
    Plan plan = exchange();
    for (std::size_t at = 0; takes_part_ && at < members_.size(); ++at) {
      plan.input_by_rank[rank_at(at)].add(share(at), n_own_);
      plan.output_by_rank[rank_at(at)] = whole_.output.part(begin_at(at), n_bytes_at(at));
    }
    return plan;
  }

 private:
  Plan exchange() const {
    Plan plan;
    plan.collective = Collective::kAlltoall;
    plan.n_bytes = n_bytes_at(0);  // no share is longer than the first
    plan.input_by_rank.resize(n_ranks_);
    plan.output_by_rank.resize(n_ranks_);
    return plan;
  }

  std::size_t rank_at(std::size_t at) const { return static_cast<std::size_t>(members_[at]); }
  std::size_t n_bytes_at(std::size_t at) const { return static_cast<std::size_t>(counts_[at]) * size_of(whole_.dtype); }
  std::size_t begin_at(std::size_t at) const { return sum_of(std::span(counts_).first(at)) * size_of(whole_.dtype); }
  std::byte* share(std::size_t at) { return shares_.data() + at * n_own_; }

  Plan whole_;
  std::vector<int> members_;
  bool divides_by_all_;
  std::size_t n_ranks_;
  std::vector<std::int64_t> counts_;  // of elements, of each member's share
  bool takes_part_ = false;
  std::size_t n_own_ = 0;          // bytes of this rank's share
  std::vector<std::byte> shares_;  // of every member's input, then of every member's result
};

using Scans = std::vector<Scan>;

Work second_phase(const std::shared_ptr<Scans>& scans) {
  Work work;
  for (Scan& scan : *scans) {
    scan.combine();
    work.plans.push_back(scan.collect());
  }
  work.continue_with = [scans] { return Result<Work>(Work{}); };  // keeps the memory that the plans read
  return work;
}

}  // namespace

Result<Work> scan_work(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  const std::vector<const Request*> requests = requests_of(entry, in_flight);
  std::vector<Plan> wholes = plan_reduction(requests);
  if (mesh.size() == 1 || (!wholes.empty() && !wholes.front().place.is_host())) return Work{std::move(wholes), nullptr};
  const bool divides_by_all = requests.front()->signature.divides_by_all;
  auto scans = std::make_shared<Scans>();
  for (Plan& whole : wholes) {
    scans->emplace_back(std::move(whole), contributors(entry, mesh.size()), divides_by_all, mesh);
  }
  Work work;
  for (Scan& scan : *scans) work.plans.push_back(scan.spread());
  work.continue_with = [scans] { return Result<Work>(second_phase(scans)); };
  return work;
}

void scan_at_hand(const DirectTensor& tensor, std::size_t self, std::span<const std::byte*> contributed,
                  std::byte* output) {
  Reduction reduction = tensor.reduction;
  reduction.n_average = static_cast<int>(self) + 1;
  kernels::reduce(reduction, contributed.first(self + 1), output, tensor.count);
}

}  // namespace ciranda
