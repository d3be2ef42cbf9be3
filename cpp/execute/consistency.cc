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

}  // namespace

void Consistency::remember(const Participant::Execute& entry) {
  for (const Participant::Ready& ready : entry.requests) {
    const Submission& at = in_flight_.at(ready.ticket);
    if (at.outcome.ok()) remember(at);
  }
}

void Consistency::remember(const Submission& entry) {
  const Signature& signature = entry.request->signature;
  for (std::size_t i = 0; i < signature.tensors.size(); ++i) {
    std::string what = call_text(*entry.request);
    if (signature.tensors.size() > 1) what += ", tensor " + std::to_string(i) + " of the group";
    remembered_.push_back({std::move(what), checksum(result_of(entry, i, mesh_))});
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

void Consistency::find_first(const Participant::Execute& entry) {
  const std::size_t n = remembered_.size();
  std::size_t first = 0;
  const auto is_alike = [&](std::size_t index) {
    for (std::size_t at = index; at < received_.size(); at += n) {
      if (received_[at] != received_[index]) return false;
    }
    return true;
  };
  while (first + 1 < n && is_alike(first)) ++first;
  const Status status = Status::mismatch(describe(first));
  for (const Participant::Ready& ready : entry.requests) {
    Status& outcome = in_flight_.at(ready.ticket).outcome;
    if (outcome.ok()) outcome = status;
  }
  remembered_.clear();
}

// Regards the most frequent result as correct; if several are equally frequent, the result of the lowest rank.
std::string Consistency::describe(std::size_t index) const {
  const auto n_ranks = static_cast<std::size_t>(mesh_.size());
  const auto sum_of = [&](std::size_t rank) { return received_[rank * remembered_.size() + index]; };
  const auto n_like = [&](std::size_t rank) {
    std::size_t n = 0;
    for (std::size_t other = 0; other < n_ranks; ++other) n += sum_of(other) == sum_of(rank) ? 1 : 0;
    return n;
  };
  std::size_t right = 0;
  for (std::size_t rank = 1; rank < n_ranks; ++rank) {
    if (n_like(rank) > n_like(right)) right = rank;
  }
  std::vector<int> alike;
  std::vector<int> odd;
  for (std::size_t rank = 0; rank < n_ranks; ++rank) {
    (sum_of(rank) == sum_of(right) ? alike : odd).push_back(mesh_.peer(static_cast<int>(rank)).rank);
  }
  return "The result of " + remembered_[index].what + " has other bits on " + list_ranks(odd) + " than on " +
         list_ranks(alike) + ". It is the first different one of the last " + std::to_string(remembered_.size()) +
         " results, which CIRANDA_CHECK_CONSISTENCY compared. Either that process writes to a tensor while an "
         "operation uses it, or gives two tensors the same memory; or its memory or processor is faulty.";
}

}  // namespace ciranda
