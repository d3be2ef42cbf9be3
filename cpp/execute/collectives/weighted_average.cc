// Weighted averages, in two phases: ranks exchange their weights; then the reduction multiplies every input by its
// weight divided by the sum of all weights.
//
// Weights may differ in every call, and the log does not agree on them; so ranks exchange them at execution. A request
// whose weights cannot be used fails, with the same error on all ranks.
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "execute/allgather_numbers.hpp"
#include "execute/collectives/functions.hpp"

namespace ciranda {
namespace {

class WeightedAverage {
 public:
  WeightedAverage(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh)
      : contributors_(contributors(entry, mesh.size())), in_flight_(in_flight), mesh_(mesh) {
    for (const Participant::Ready& ready : entry.requests) {
      tickets_.push_back(ready.ticket);
      sent_.push_back(in_flight_.at(ready.ticket).request->weight);
    }
  }

  Work first_phase(std::function<Result<Work>()> then) {
    return allgather_numbers(sent_, mesh_.size(), received_, std::move(then));
  }

  // Requests that follow each other and have the same weights are fused.
  Work second_phase() {
    Work work;
    std::vector<std::pair<std::vector<double>, std::vector<const Request*>>> alike;
    for (std::size_t i = 0; i < tickets_.size(); ++i) {
      Submission& entry = in_flight_.at(tickets_[i]);
      std::vector<double> weights = weights_of(i);
      entry.outcome = check(*entry.request, weights);
      if (!entry.outcome.ok()) continue;
      if (alike.empty() || alike.back().first != weights) alike.emplace_back(std::move(weights), 0);
      alike.back().second.push_back(entry.request.get());
    }
    for (const auto& [weights, requests] : alike) {
      for (Plan& plan : plan_reduction(requests)) {
        plan.op = ReduceOp::kSum;
        plan.weights = shares_of(weights);
        work.plans.push_back(std::move(plan));
      }
    }
    return work;
  }

 private:
  // The weights of the members that contribute.
  std::vector<double> weights_of(std::size_t request) const {
    std::vector<double> weights;
    for (const int member : contributors_) {
      weights.push_back(received_[static_cast<std::size_t>(member) * tickets_.size() + request]);
    }
    return weights;
  }

  Status check(const Request& request, const std::vector<double>& weights) const {
    const std::string where = "allreduce '" + request.name + "': ";
    double sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      sum += weights[i];
      if (std::isfinite(weights[i]) && weights[i] >= 0) continue;
      return Status::invalid_argument(where + "the weight " + exact_text(weights[i]) + " of " + "rank " +
                                      std::to_string(mesh_.peer(contributors_[i]).rank) +
                                      " is not a finite number, 0 or more.");
    }
    if (sum > 0 && std::isfinite(sum)) return Status::ok_status();
    return Status::invalid_argument(where + "the ranks' weights add up to " + exact_text(sum) +
                                    ", by which nothing can be divided; at least one must be more than 0.");
  }

  // Each weight divided by the sum of all. So large weights cannot make the result overflow.
  static std::vector<double> shares_of(std::vector<double> weights) {
    double sum = 0;
    for (const double weight : weights) sum += weight;
    for (double& weight : weights) weight /= sum;
    return weights;
  }

  std::vector<Ticket> tickets_;
  std::vector<int> contributors_;
  InFlight& in_flight_;
  const Mesh& mesh_;
  std::vector<double> sent_;      // [request]
  std::vector<double> received_;  // [rank][request]
};

}  // namespace

Result<Work> weighted_work(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  auto average = std::make_shared<WeightedAverage>(entry, in_flight, mesh);
  return average->first_phase([average] { return Result<Work>(average->second_phase()); });
}

}  // namespace ciranda
