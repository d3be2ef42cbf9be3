#include "engine/split_exchange.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/outputs.hpp"

namespace ciranda {
namespace {

// Instead of the most bytes: this rank's splits were refused.
constexpr std::int64_t kRefused = -1;

// What each rank tells each other, as int64: the rows of each tensor that are for it, and at last the most bytes that
// the teller has for any one rank, from which all learn how long the second phase is.
class SplitExchange {
 public:
  SplitExchange(Participant::Ticket ticket, InFlight& in_flight, const Mesh& mesh)
      : ticket_(ticket),
        in_flight_(in_flight),
        mesh_(mesh),
        n_ranks_(static_cast<std::size_t>(mesh.size())),
        n_numbers_(signature().tensors.size() + 1),
        told_(n_ranks_ * n_numbers_),
        heard_(n_ranks_ * n_numbers_) {
    if (!is_sender(mesh.rank())) return;
    const std::int64_t longest = request().refusal.ok() ? static_cast<std::int64_t>(longest_bytes()) : kRefused;
    for (std::size_t to = 0; to < n_ranks_; ++to) {
      for (std::size_t tensor = 0; tensor + 1 < n_numbers_; ++tensor) {
        told_[to * n_numbers_ + tensor] = request().splits[tensor][to];
      }
      told_[to * n_numbers_ + n_numbers_ - 1] = longest;
    }
  }

  Plan first_phase() {
    Plan plan;
    plan.collective = signature().collective;
    plan.n_bytes = n_numbers_ * sizeof(std::int64_t);
    plan.input_by_rank.resize(n_ranks_);
    plan.output_by_rank.resize(n_ranks_);
    for (std::size_t rank = 0; rank < n_ranks_; ++rank) {
      auto* told = reinterpret_cast<const std::byte*>(&told_[rank * n_numbers_]);
      auto* heard = reinterpret_cast<std::byte*>(&heard_[rank * n_numbers_]);
      if (is_sender(mesh_.rank())) plan.input_by_rank[rank].add(told, plan.n_bytes);
      if (is_sender(static_cast<int>(rank))) plan.output_by_rank[rank].add(heard, plan.n_bytes);
    }
    return plan;
  }

  Result<Work> second_phase() {
    if (Status status = find_refusal(); !status.ok()) {
      in_flight_.at(ticket_).outcome = std::move(status);
      return Work{};
    }
    const FirstDims rows_to = rows(told_);
    const FirstDims rows_from = rows(heard_);
    std::vector<std::int64_t> n_rows;
    if (!count_rows(rows_from, n_rows)) {
      return Status::internal("the splits that came for " + std::string(to_string(signature().collective)) + " '" +
                              request().name + "' are larger than any tensor");
    }
    Outputs outputs;
    const Status status = outputs.allocate(in_flight_.output_memory(), request(), n_rows, mesh_);
    if (!status.ok()) return status;
    Work work;
    work.plans.push_back(plan_exchange(request(), rows_to, rows_from, outputs.memory, longest_of_all()));
    if (!info(signature().collective).has_root) outputs.add_received_splits(rows_from);
    in_flight_.at(ticket_).operation->set_outputs(std::move(outputs.buffers));
    return work;
  }

 private:
  const Request& request() const { return in_flight_.at(ticket_).request; }
  const Signature& signature() const { return request().signature; }

  // All, or only the root.
  bool is_sender(int rank) const {
    return !info(signature().collective).has_root || root_member(signature(), mesh_) == rank;
  }

  std::size_t longest_bytes() const {
    std::size_t longest = 0;
    for (std::size_t to = 0; to < n_ranks_; ++to) {
      std::size_t n_bytes = 0;
      for (std::size_t tensor = 0; tensor + 1 < n_numbers_; ++tensor) {
        const auto n_rows = static_cast<std::size_t>(request().splits[tensor][to]);
        n_bytes += n_rows * signature().tensors[tensor].row_bytes();
      }
      longest = std::max(longest, n_bytes);
    }
    return longest;
  }

  // [tensor][rank]
  FirstDims rows(const std::vector<std::int64_t>& numbers) const {
    FirstDims rows(n_numbers_ - 1, std::vector<std::int64_t>(n_ranks_));
    for (std::size_t tensor = 0; tensor < rows.size(); ++tensor) {
      for (std::size_t rank = 0; rank < n_ranks_; ++rank) rows[tensor][rank] = numbers[rank * n_numbers_ + tensor];
    }
    return rows;
  }

  // Whether what came over the network can be believed as to memory.
  bool count_rows(const FirstDims& rows_from, std::vector<std::int64_t>& n_rows) const {
    Signature whole = signature();
    if (info(whole.collective).has_root) whole.root = root_member(whole, mesh_);
    for (std::size_t tensor = 0; tensor < rows_from.size(); ++tensor) {
      const auto sum = sum_of_rows(rows_from[tensor]);
      if (!sum) return false;
      n_rows.push_back(*sum);
      whole.tensors[tensor].shape.front() = *sum;
    }
    return validate(request().name, whole, mesh_.size()).ok();
  }

  std::int64_t longest_of(std::size_t rank) const { return heard_[rank * n_numbers_ + n_numbers_ - 1]; }

  std::size_t longest_of_all() const {
    std::int64_t longest = 0;
    for (std::size_t rank = 0; rank < n_ranks_; ++rank) longest = std::max(longest, longest_of(rank));
    return static_cast<std::size_t>(longest);
  }

  // This rank's own reason goes before others'.
  Status find_refusal() const {
    if (!request().refusal.ok()) return request().refusal;
    for (std::size_t rank = 0; rank < n_ranks_; ++rank) {
      if (longest_of(rank) != kRefused) continue;
      return Status::invalid_argument(std::string(to_string(signature().collective)) + " '" + request().name +
                                      "': rank " + std::to_string(mesh_.peer(static_cast<int>(rank)).rank) +
                                      " gave splits that cannot be; its own error says why. No rank got anything.");
    }
    return Status::ok_status();
  }

  Participant::Ticket ticket_;  // what it stands for moves when others come
  InFlight& in_flight_;
  const Mesh& mesh_;
  std::size_t n_ranks_;
  std::size_t n_numbers_;
  std::vector<std::int64_t> told_;   // [rank][number]
  std::vector<std::int64_t> heard_;  // [rank][number]
};

}  // namespace

Work exchange_splits_first(Participant::Ticket ticket, InFlight& in_flight, const Mesh& mesh) {
  auto exchange = std::make_shared<SplitExchange>(ticket, in_flight, mesh);
  Work work;
  work.plans.push_back(exchange->first_phase());
  work.continue_with = [exchange] { return exchange->second_phase(); };
  return work;
}

}  // namespace ciranda
