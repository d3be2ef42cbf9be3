#include "execute/consistency.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "base/checksum.hpp"
#include "base/list_ranks.hpp"
#include "execute/allgather_numbers.hpp"

namespace ciranda {
namespace {

// Instead of the checksum of a result for which this rank had no memory.
constexpr std::uint64_t kNone = 0;

bool is_on_device(const Submission& entry) { return entry.staged != nullptr && entry.staged->is_by_peer(); }

// The bytes that must be equal on all ranks after the call: this rank's result, or the input that it has sent to the
// other rank.
std::span<const std::byte> result_of(const Submission& entry, std::size_t tensor, const Mesh& mesh) {
  const Signature& signature = entry.request->signature;
  const CollectiveInfo& facts = info(signature.collective);
  if (!facts.allocates_output) {
    const TensorMemory& memory = entry.request->memory[tensor];
    const bool has_it = facts.receives(facts.has_root && root_member(signature, mesh) == mesh.rank());
    return {has_it ? memory.output : memory.input, signature.tensors[tensor].n_bytes()};
  }
  const OutputBuffer& output = entry.operation->outputs()[tensor];
  return {output.data.get(), output.n_bytes};
}

std::vector<std::span<const std::byte>> results_of(const Submission& entry, const Mesh& mesh) {
  std::vector<std::span<const std::byte>> results;
  for (std::size_t i = 0; i < entry.request->signature.tensors.size(); ++i)
    results.push_back(result_of(entry, i, mesh));
  return results;
}

std::vector<std::uint64_t> checksums_of(const Submission& entry, const Mesh& mesh) {
  if (!entry.outcome.ok()) return std::vector<std::uint64_t>(entry.request->signature.tensors.size(), kNone);
  if (is_on_device(entry)) return entry.staged->checksums();
  std::vector<std::uint64_t> sums;
  for (const auto& result : results_of(entry, mesh)) sums.push_back(checksum(result));
  return sums;
}

}  // namespace

Work Consistency::check(const Participant::Execute& entry) {
  for (const Participant::Ready& ready : entry.requests) {
    const Submission& at = in_flight_.at(ready.ticket);
    if (is_on_device(at) && at.outcome.ok()) at.staged->sum_up(results_of(at, mesh_));
  }
  return {.plans = {},
          .continue_with = [this, &entry] { return Result<Work>(remember_and_compare(entry)); },
          .may_continue = [this, &entry]() REQUIRES(progress_lock) { return are_summed(entry); }};
}

Result<bool> Consistency::are_summed(const Participant::Execute& entry) const {
  for (const Participant::Ready& ready : entry.requests) {
    const Submission& at = in_flight_.at(ready.ticket);
    if (!is_on_device(at)) continue;
    if (!at.staged->is_here()) return false;
    if (Status status = at.staged->status(); !status.ok()) return status;
  }
  return true;
}

Work Consistency::remember_and_compare(const Participant::Execute& entry) {
  for (const Participant::Ready& ready : entry.requests) {
    const Submission& at = in_flight_.at(ready.ticket);
    remember(at, checksums_of(at, mesh_));
  }
  return entry.check == Check::kCompare ? compare(entry) : Work{};
}

void Consistency::remember(const Submission& entry, const std::vector<std::uint64_t>& checksums) {
  for (std::size_t i = 0; i < checksums.size(); ++i) {
    std::string what = call_text(*entry.request);
    if (checksums.size() > 1) what += ", tensor " + std::to_string(i) + " of the group";
    remembered_.push_back({std::move(what), checksums[i]});
  }
}

Work Consistency::compare(const Participant::Execute& entry) {
  std::uint64_t running = 0;
  for (const Remembered& one : remembered_) running = checksum(std::as_bytes(std::span(&one.checksum, 1)), running);
  sent_ = {running};
  return allgather_numbers(sent_, mesh_.size(), received_, [this, &entry] { return Result<Work>(look_closer(entry)); });
}

Work Consistency::look_closer(const Participant::Execute& entry) {
  const bool all_alike =
      std::all_of(received_.begin(), received_.end(), [this](auto sum) { return sum == received_.front(); });
  if (all_alike) {
    remembered_.clear();
    return {};
  }
  sent_.clear();
  for (const Remembered& one : remembered_) sent_.push_back(one.checksum);
  return allgather_numbers(sent_, mesh_.size(), received_, [this, &entry] {
    find_first(entry);
    return Result<Work>(Work{});
  });
}

// Results that a rank does not have are like any other.
void Consistency::find_first(const Participant::Execute& entry) {
  const std::size_t n = remembered_.size();
  const auto is_alike = [&](std::size_t index) {
    std::uint64_t first = kNone;
    for (std::size_t at = index; at < received_.size(); at += n) {
      if (first == kNone) first = received_[at];
      if (received_[at] != first && received_[at] != kNone) return false;
    }
    return true;
  };
  std::size_t first = 0;
  while (first < n && is_alike(first)) ++first;
  if (first < n) {
    const Status status = Status::mismatch(describe(first));
    for (const Participant::Ready& ready : entry.requests) {
      Status& outcome = in_flight_.at(ready.ticket).outcome;
      if (outcome.ok()) outcome = status;
    }
  }
  remembered_.clear();
}

// Regards the most frequent result as correct; if several are equally frequent, the result of the lowest rank.
std::string Consistency::describe(std::size_t index) const {
  std::vector<int> ranks;  // that have the result; members of the mesh
  std::vector<std::uint64_t> sums;
  for (int member = 0; member < mesh_.size(); ++member) {
    const std::uint64_t sum = received_[static_cast<std::size_t>(member) * remembered_.size() + index];
    if (sum == kNone) continue;
    ranks.push_back(mesh_.peer(member).rank);
    sums.push_back(sum);
  }
  const auto n_like = [&](std::uint64_t sum) { return std::ranges::count(sums, sum); };
  const std::uint64_t right = *std::ranges::max_element(sums, {}, n_like);
  std::vector<int> alike;
  std::vector<int> odd;
  for (std::size_t i = 0; i < sums.size(); ++i) (sums[i] == right ? alike : odd).push_back(ranks[i]);
  return "The result of " + remembered_[index].what + " has other bits on " + list_ranks(odd) + " than on " +
         list_ranks(alike) + ". It is the first different one of the last " + std::to_string(remembered_.size()) +
         " results, which CIRANDA_CHECK_CONSISTENCY compared. Either that process writes to a tensor while an "
         "operation uses it, or gives two tensors the same memory; or its memory or processor is faulty.";
}

}  // namespace ciranda
