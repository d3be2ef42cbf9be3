#include "engine/preparation.hpp"

#include <algorithm>
#include <functional>
#include <string>

#include "agree/unnamed.hpp"

namespace ciranda {
namespace {

// The text itself, or what stands for a long one.
std::string short_text(const std::string& text) {
  constexpr std::size_t kShort = 200;
  if (text.size() <= kShort) return text;
  return text.substr(0, kShort) + "... #" + std::to_string(std::hash<std::string>()(text));
}

}  // namespace

Status Preparation::prepare(Request& request) const {
  const bool is_unnamed = request.name.empty() && !request.is_cacheable;
  if (is_unnamed) request.name = "unnamed";
  if (Status status = check(request); !status.ok()) return status;
  complete_name(request, is_unnamed);
  for (TensorMemory& memory : request.memory) {
    if (memory.input == nullptr) memory.input = memory.output;
  }
  return Status::ok_status();
}

Status Preparation::check(Request& request) const {
  const auto where = [&] { return call_text(request) + ": "; };
  const Ranks ranks = sets_.ranks(request.process_set);
  if (!ranks) {
    return Status::invalid_argument(where() + "process set " + std::to_string(request.process_set) +
                                    " does not exist (any more); add_process_set() makes one on all ranks.");
  }
  if (std::find(ranks->begin(), ranks->end(), rank_) == ranks->end()) {
    return Status::invalid_argument(where() + "rank " + std::to_string(rank_) + " is not in process set " +
                                    std::to_string(request.process_set) + ", whose ranks are " + to_string(*ranks) +
                                    ".");
  }
  if (request.lane >= n_lanes_of(request.process_set)) {
    const std::string highest = std::to_string(n_lanes_of(request.process_set) - 1);
    return Status::invalid_argument(where() + "lane " + std::to_string(request.lane) +
                                    " does not exist: lanes of process set " + std::to_string(request.process_set) +
                                    " are counted from 0 to " + highest + ".");
  }
  if (info(request.signature.collective).subject == Subject::kLanes) {
    return Status::invalid_argument(where() + "lanes come to be by being used.");
  }
  if (Status status = check_place(request); !status.ok()) return status;
  Status status = validate(request, *ranks, rank_);
  if (!status.ok()) return status;
  settle_splits(request, static_cast<int>(ranks->size()), rank_);
  // What cannot be cut in equal parts is as long on all ranks: none needs to hear of it from another.
  return keeps_rows(request) ? request.refusal : status;
}

// Requests that are not told apart by the user are told apart by what they are about.
void Preparation::complete_name(Request& request, bool is_unnamed) {
  const Signature& signature = request.signature;
  const CollectiveInfo& facts = info(signature.collective);
  const bool is_about_sets = facts.subject == Subject::kSets;
  if (is_about_sets || facts.subject == Subject::kJoin) {
    request.is_cacheable = false;
    request.lane = 0;  // a rank joins all lanes of a set
    request.name = to_string(signature.collective);
    if (is_about_sets) request.name += " " + short_text(to_string(signature.arguments));
    return;
  }
  if (is_unnamed) request.name = kUnnamed;
  if (facts.is_between_two) request.name = "from " + std::to_string(signature.root) + " " + request.name;
}

}  // namespace ciranda
