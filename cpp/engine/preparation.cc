#include "engine/preparation.hpp"

#include <algorithm>
#include <span>
#include <string>

#include "agree/unnamed.hpp"
#include "base/checksum.hpp"

namespace ciranda {
namespace {

// The length of the end of a shortened text: "... #" and a 64-bit number.
constexpr std::size_t kHashBytes = 25;

// Returns a short text as it is. Of a long one, returns the beginning and a hash of the whole: the same on all ranks.
std::string short_text(const std::string& text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  const auto continues_character = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; };
  std::size_t n_bytes = most_bytes - kHashBytes;
  while (n_bytes > 0 && continues_character(text[n_bytes])) --n_bytes;
  return text.substr(0, n_bytes) + "... #" + std::to_string(checksum(std::as_bytes(std::span(text))));
}

// The longest name to which a prefix (the sender) or a suffix (a number) can still be added.
constexpr std::size_t kMostBytesAsTheyAre = kMaxNameBytes - 48;

// Users may give names that are longer than messages allow.
void shorten_name(Request& request) {
  const bool gets_longer = info(request.signature.collective).is_between_two || !request.is_cacheable;
  request.name = short_text(request.name, gets_longer ? kMostBytesAsTheyAre : kMaxNameBytes);
}

// Whether the request's process set and lane allow its collective. A transfer between two ranks needs the set of that
// pair. Process sets are changed only in the world's first lane, so that all ranks change them in one order.
Status check_place(const Request& request) {
  const Collective collective = request.signature.collective;
  const auto refuse = [&](const std::string& why) {
    return Status::invalid_argument(call_text(request) + ": " + why + std::to_string(request.process_set) + ", lane " +
                                    std::to_string(request.lane) + ".");
  };
  if (info(collective).is_between_two && !is_pair(request.process_set)) {
    return refuse("its process set must be the pair of two ranks, here it is set ");
  }
  const bool is_about_sets = info(collective).subject == Subject::kSets;
  if (is_about_sets && (request.process_set != kWorldSet || request.lane != 0)) {
    return refuse("all ranks do it, in process set 0 on lane 0, here it is set ");
  }
  return Status::ok_status();
}

Status check(Request& request, int rank, const ProcessSets& sets) {
  const auto where = [&] { return call_text(request) + ": "; };
  const Ranks ranks = sets.ranks(request.process_set);
  if (!ranks) {
    if (const auto ended = sets.end_of(request.process_set)) return {ended->kind(), where() + ended->message()};
    return Status::invalid_argument(where() + "process set " + std::to_string(request.process_set) +
                                    " does not exist (any more); add_process_set() makes one on all ranks.");
  }
  if (std::find(ranks->begin(), ranks->end(), rank) == ranks->end()) {
    return Status::invalid_argument(where() + "rank " + std::to_string(rank) + " is not in process set " +
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
    return Status::invalid_argument(where() + "lanes are created when they are first used.");
  }
  if (Status status = check_place(request); !status.ok()) return status;
  Status status = validate(request, *ranks, rank);
  if (!status.ok()) return status;
  settle_splits(request, static_cast<int>(ranks->size()), rank);
  // Rows that cannot be cut into equal parts are equally many on all ranks, so each rank refuses the call by itself.
  return keeps_rows(request) ? request.refusal : status;
}

// Completes the name by what the request is about, if the user's name does not identify the request.
void complete_name(Request& request, bool is_unnamed) {
  const Signature& signature = request.signature;
  const CollectiveInfo& facts = info(signature.collective);
  const bool is_about_sets = facts.subject == Subject::kSets;
  if (is_about_sets || facts.subject == Subject::kJoin) {
    request.is_cacheable = false;
    request.lane = 0;  // a rank joins all lanes of a set
    request.name = to_string(signature.collective);
    if (is_about_sets) request.name += " " + short_text(to_string(signature.arguments), 200 + kHashBytes);
    return;
  }
  if (is_unnamed) request.name = kUnnamed;
  if (facts.is_between_two) request.name = "from " + std::to_string(signature.root) + " " + request.name;
}

}  // namespace

Status prepare(Request& request, int rank, const ProcessSets& sets) {
  const bool is_unnamed = request.name.empty() && !request.is_cacheable;
  if (is_unnamed) request.name = "unnamed";
  if (request.name.size() > kMostBytesAsTheyAre) shorten_name(request);
  if (Status status = check(request, rank, sets); !status.ok()) return status;
  complete_name(request, is_unnamed);
  for (TensorMemory& memory : request.memory) {
    if (memory.input == nullptr) memory.input = memory.output;
  }
  return Status::ok_status();
}

}  // namespace ciranda
