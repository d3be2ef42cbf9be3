// Alltoall and scatter: each rank, or the root alone, has rows for each rank.
//
// Splits may differ in every call, and the log does not agree on them. So the work has two phases. In the first, ranks
// exchange the numbers of rows that they have for each other. In the second, outputs are allocated and rows are sent.
// If the splits of one rank are invalid, the request fails on all ranks after the first phase.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "execute/collectives/functions.hpp"
#include "execute/outputs.hpp"

namespace ciranda {
namespace {

// Sent instead of the largest number of bytes if this rank's splits were refused.
constexpr std::int64_t kRefused = -1;

// The numbers that each rank sends to each other rank, as int64: for each tensor, the number of rows for the receiver;
// then the largest number of bytes that the sender has for any one rank, which gives the size of the second phase.
class SplitExchange : public std::enable_shared_from_this<SplitExchange> {
 public:
  SplitExchange(Ticket ticket, InFlight& in_flight, const Mesh& mesh)
      : ticket_(ticket),
        in_flight_(in_flight),
        mesh_(mesh),
        n_ranks_(static_cast<std::size_t>(mesh.size())),
        n_numbers_(signature().tensors.size() + 1),
        sent_(n_ranks_ * n_numbers_),
        received_(n_ranks_ * n_numbers_) {
    if (!is_sender(mesh.rank())) return;
    const std::int64_t longest = request().refusal.ok() ? static_cast<std::int64_t>(longest_bytes()) : kRefused;
    for (std::size_t to = 0; to < n_ranks_; ++to) {
      for (std::size_t tensor = 0; tensor + 1 < n_numbers_; ++tensor) {
        sent_[to * n_numbers_ + tensor] = request().splits[tensor][to];
      }
      sent_[to * n_numbers_ + n_numbers_ - 1] = longest;
    }
  }

  Plan first_phase() {
    Plan plan;
    plan.collective = signature().collective;
    plan.n_bytes = n_numbers_ * sizeof(std::int64_t);
    plan.input_by_rank.resize(n_ranks_);
    plan.output_by_rank.resize(n_ranks_);
    for (std::size_t rank = 0; rank < n_ranks_; ++rank) {
      auto* sent = reinterpret_cast<const std::byte*>(&sent_[rank * n_numbers_]);
      auto* received = reinterpret_cast<std::byte*>(&received_[rank * n_numbers_]);
      if (is_sender(mesh_.rank())) plan.input_by_rank[rank].add(sent, plan.n_bytes);
      if (is_sender(static_cast<int>(rank))) plan.output_by_rank[rank].add(received, plan.n_bytes);
    }
    return plan;
  }

  Result<Work> second_phase() {
    if (Status status = find_refusal(); !status.ok()) {
      in_flight_.at(ticket_).outcome = std::move(status);
      return Work{};
    }
    rows_from_ = rows(received_);
    return work_with_outputs(ticket_, in_flight_, &rows_from_, mesh_,
                             [kept = shared_from_this()](const std::vector<std::byte*>& outputs) -> Result<Work> {
                               return Work{{kept->plan(outputs)}, nullptr};
                             });
  }

 private:
  Plan plan(const std::vector<std::byte*>& outputs) const {
    Plan plan = plan_exchange(request(), rows(sent_), rows_from_, outputs, longest_of_all());
    if (info(signature().collective).is_from_root) plan.root = root_member(signature(), mesh_);
    return plan;
  }

  const Request& request() const { return *in_flight_.at(ticket_).request; }
  const Signature& signature() const { return request().signature; }

  bool is_sender(int rank) const {
    const CollectiveInfo& facts = info(signature().collective);
    return facts.gives(facts.has_root && root_member(signature(), mesh_) == rank);
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

  // The numbers of rows among `numbers`, as [tensor][rank].
  FirstDims rows(const std::vector<std::int64_t>& numbers) const {
    FirstDims rows(n_numbers_ - 1, std::vector<std::int64_t>(n_ranks_));
    for (std::size_t tensor = 0; tensor < rows.size(); ++tensor) {
      for (std::size_t rank = 0; rank < n_ranks_; ++rank) rows[tensor][rank] = numbers[rank * n_numbers_ + tensor];
    }
    return rows;
  }

  std::int64_t longest_of(std::size_t rank) const { return received_[rank * n_numbers_ + n_numbers_ - 1]; }

  std::size_t longest_of_all() const {
    std::int64_t longest = 0;
    for (std::size_t rank = 0; rank < n_ranks_; ++rank) longest = std::max(longest, longest_of(rank));
    return static_cast<std::size_t>(longest);
  }

  // A refusal of this rank's own splits has precedence over those of other ranks.
  Status find_refusal() const {
    if (!request().refusal.ok()) return request().refusal;
    for (std::size_t rank = 0; rank < n_ranks_; ++rank) {
      if (longest_of(rank) != kRefused) continue;
      return Status::invalid_argument(call_text(request()) + ": rank " +
                                      std::to_string(mesh_.peer(static_cast<int>(rank)).rank) +
                                      " gave splits that cannot be; its own error says why. No rank got anything.");
    }
    return Status::ok_status();
  }

  Ticket ticket_;  // not a reference: the submission moves when others are added
  InFlight& in_flight_;
  const Mesh& mesh_;
  std::size_t n_ranks_;
  std::size_t n_numbers_;
  std::vector<std::int64_t> sent_;      // [rank][number]
  std::vector<std::int64_t> received_;  // [rank][number]
  FirstDims rows_from_;                 // [tensor][rank]
};

// All ranks have equally many rows and send equal parts into given memory, so the first phase is not needed.
Result<Work> exchange_evenly(const Submission& entry, const Mesh& mesh, const OutputMemory& memory) {
  const Request& request = *entry.request;
  if (!request.refusal.ok()) return request.refusal;
  const auto outputs = give_outputs(entry, &request.splits, mesh, memory);
  if (!outputs.ok()) return outputs.status();
  std::size_t longest_bytes = 0;
  for (std::size_t i = 0; i < request.splits.size(); ++i) {
    longest_bytes += static_cast<std::size_t>(request.splits[i].front()) * request.signature.tensors[i].row_bytes();
  }
  return Work{{plan_exchange(request, request.splits, request.splits, outputs.value(), longest_bytes)}, nullptr};
}

}  // namespace

Result<Work> exchange_work(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  const Ticket ticket = entry.requests.front().ticket;
  const Submission& at = in_flight.at(ticket);
  if (keeps_rows(*at.request)) return exchange_evenly(at, mesh, in_flight.output_memory());
  auto exchange = std::make_shared<SplitExchange>(ticket, in_flight, mesh);
  return Work{{exchange->first_phase()}, [exchange] { return exchange->second_phase(); }};
}

void exchange_at_hand(const DirectTensor& tensor, std::size_t self, std::span<const std::byte*> contributed,
                      std::byte* output) {
  const std::size_t n_members = contributed.size();
  for (std::size_t member = 0; member < n_members; ++member) {
    const std::size_t n_bytes = tensor.rows_for(self, member, n_members).n_bytes;
    copy_unless_there(output, contributed[member] + tensor.begin_in(member, self, n_members), n_bytes);
    output += n_bytes;
  }
}

}  // namespace ciranda
