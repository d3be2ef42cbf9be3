#include "engine/lanes.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/world_text.hpp"

namespace ciranda {
namespace {

// A limit that is exceeded only by a fault: otherwise no rank is ahead of another by this number of messages.
constexpr std::size_t kMostEarlyMessages = 1 << 20;

bool has(const std::vector<int>& ranks, int rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }

Status why_gone(const ProcessSets& sets, std::uint32_t process_set) {
  const Status removed = Status::aborted("process set " + std::to_string(process_set) + " has been removed.");
  return sets.end_of(process_set).value_or(removed);
}

// True if the request leaves a formed set. The ranks of a formed set leave it one by one, without agreement.
bool is_departure(const Request& request) {
  return request.signature.collective == Collective::kRemoveProcessSet &&
         is_formed(static_cast<std::uint32_t>(request.signature.arguments.front()));
}

// Removes the items kept for the lane, and returns them.
template <typename T>
std::vector<T> take(std::map<LaneId, std::vector<T>>& kept, LaneId lane) {
  auto taken = kept.extract(lane);
  return taken.empty() ? std::vector<T>{} : std::move(taken.mapped());
}

// The submission by which a lane joins because the first lane of its set does.
Submission join_along() { return {std::make_unique<Request>(), std::make_shared<Operation>()}; }

}  // namespace

Lanes::Lanes(WorldParts& world) : world_(world) { make_first(kWorldSet, *world.sets.ranks(kWorldSet)); }

Lane* Lanes::find(LaneId id) const {
  if (id == 0) return lanes_.front().get();
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

Lane* Lanes::find_only_pending() const {
  const auto is_pending = [](const auto& lane) REQUIRES(progress_lock) { return lane->has_pending(); };
  const auto first = std::find_if(lanes_.begin(), lanes_.end(), is_pending);
  if (first == lanes_.end() || !kept_.empty() || std::any_of(first + 1, lanes_.end(), is_pending)) return nullptr;
  return first->get();
}

// The call has not been checked yet. It must not overtake kept calls, nor follow a join of its set; the set's first
// lane knows whether this rank has joined.
Lane* Lanes::find_further(std::uint32_t process_set, std::uint32_t number) const {
  const LaneId id = lane_id(process_set, number);
  Lane* const lane = is_lane(process_set, number) ? find(id) : nullptr;
  if (lane == nullptr || number == 0) return lane;
  const Lane* const first = find(lane_id(process_set, 0));
  return first == nullptr || first->has_joined() || kept_.contains(id) ? nullptr : lane;
}

// Creates the lane of a set that needs no agreement when it is first used.
Lane* Lanes::find_or_make(LaneId id) {
  Lane* lane = find(id);
  if (lane != nullptr || !needs_no_agreement(id)) return lane;
  const Ranks ranks = world_.sets.ranks(id);
  return ranks && has(*ranks, world_.mesh.rank()) ? &make(id, *ranks) : nullptr;
}

Lane& Lanes::make(LaneId id, const std::vector<int>& ranks) {
  SharedArena* arena = id == 0 ? world_.mesh.arena() : nullptr;
  const ChangeSets change = std::bind_front(&Lanes::change_sets, this);
  lanes_.push_back(std::make_unique<Lane>(id, ranks, arena, world_, change));
  Lane& lane = *lanes_.back();
  by_id_[id] = &lane;
  for (const Departure& departure : world_.control.departures()) lane.on_departure(departure);
  return lane;
}

// Creates as many lanes as the settings ask for. Further lanes are created on first use.
void Lanes::make_first(std::uint32_t process_set, const std::vector<int>& ranks) {
  for (std::uint32_t lane = 0; lane < static_cast<std::uint32_t>(world_.config.num_lanes); ++lane) {
    make(lane_id(process_set, lane), ranks);
  }
}

void Lanes::remove_those_that_are_over() {
  for (const auto& lane : lanes_) {
    if (lane->is_over() && lane->leaver()) world_.sets.end(set_of(lane->id()), *lane->leaver());
  }
  remove_if([](const Lane& lane) REQUIRES(progress_lock) { return lane.is_over(); });
}

// Also frees the memory that these lanes share with other ranks.
void Lanes::remove_all_but_first() {
  remove_if([](const Lane& lane) { return lane.id() != 0; });
}

template <typename Predicate>
void Lanes::remove_if(Predicate is) {
  // With iterators, since Clang 14 cannot compile the standard library's ranges.
  const auto removed = std::stable_partition(lanes_.begin(), lanes_.end(),
                                             [&](const auto& lane) REQUIRES(progress_lock) { return !is(*lane); });
  std::vector<LaneId> ids;
  for (auto lane = removed; lane != lanes_.end(); ++lane) ids.push_back((*lane)->id());
  lanes_.erase(removed, lanes_.end());
  for (const LaneId id : ids) {
    by_id_.erase(id);
    world_.names.remove_lane(id);
  }
}

// --- by the log

Status Lanes::change_sets(const Request& request, std::int64_t& result) {
  if (request.signature.collective == Collective::kAddLane) return add_lane(request);
  return request.signature.collective == Collective::kAddProcessSet ? add_set(request, result)
                                                                    : remove_set(request, result);
}

Status Lanes::add_set(const Request& request, std::int64_t& result) {
  const std::vector<int> ranks(request.signature.arguments.begin(), request.signature.arguments.end());
  if (const auto existing = world_.sets.find(ranks)) {
    return Status::invalid_argument("a process set with ranks " + to_string(ranks) + " exists already: set " +
                                    std::to_string(*existing) + ". Use that one, or remove it first.");
  }
  const std::uint32_t id = world_.sets.add(ranks);
  result = id;
  if (has(ranks, world_.mesh.rank())) make_first(id, ranks);
  world_.logger.later(LogLevel::kInfo, [&] { return set_text(id, ranks); });
  return Status::ok_status();
}

Status Lanes::remove_set(const Request& request, std::int64_t& result) {
  const auto id = static_cast<std::uint32_t>(request.signature.arguments.front());
  result = id;
  if (!world_.sets.remove(id)) return Status::invalid_argument("there is no process set " + std::to_string(id) + ".");
  world_.logger.later(LogLevel::kInfo, [&] { return "process set " + std::to_string(id) + " was removed"; });
  for (const auto& lane : lanes_) {
    if (lane->id() != 0 && set_of(lane->id()) == id) {
      lane->end(Status::aborted("process set " + std::to_string(id) + " was removed before this was done."));
    }
  }
  return Status::ok_status();
}

// All members do this at the same position in the log of the set's first lane, so none joins a lane that another lacks.
Status Lanes::add_lane(const Request& request) {
  const std::vector<std::int64_t>& arguments = request.signature.arguments;
  const Ranks ranks = world_.sets.ranks(request.process_set);
  const bool is_possible = ranks && arguments.size() == 1 && arguments.front() >= 0 &&
                           arguments.front() < static_cast<std::int64_t>(n_lanes_of(request.process_set));
  if (!is_possible) return Status::invalid_argument("'" + request.name + "' is not a possible lane.");
  const LaneId id = lane_id(request.process_set, static_cast<std::uint32_t>(arguments.front()));
  if (find(id) != nullptr) return Status::ok_status();
  const TimePoint now = std::chrono::steady_clock::now();
  Lane& lane = make(id, *ranks);
  for (Submission& submission : take(kept_, id)) lane.submit(std::move(submission), now);
  asked_for_.erase(id);
  if (find(lane_id(request.process_set, 0))->has_joined()) lane.join(join_along(), now);
  return Status::ok_status();
}

// --- messages

Status Lanes::on_message(int peer, LaneId id, Message message, TimePoint now) {
  if (Lane* lane = find_or_make(id)) {
    // The lane may be new, created by the message before this one or because a thread has formed its set.
    for (Early& early : take(early_, id)) {
      --n_early_;
      if (Status status = lane->on_message(early.peer, std::move(early.message), now); !status.ok()) return status;
    }
    return lane->on_message(peer, std::move(message), now);
  }
  const bool is_over = world_.sets.was_made(set_of(id)) && !world_.sets.ranks(set_of(id));
  if (is_over) return Status::ok_status();  // sent before its sender learned that the set is removed
  if (n_early_ >= kMostEarlyMessages) {
    return Status::internal("too many messages for lanes that do not exist, the last from " +
                            world_.control.peer_text(peer));
  }
  early_[id].push_back({peer, std::move(message)});
  ++n_early_;
  return Status::ok_status();
}

Status Lanes::deliver_kept(TimePoint now) {
  n_early_ = 0;
  for (auto& [lane, all] : std::exchange(early_, {})) {
    for (Early& early : all) {
      if (Status status = on_message(early.peer, lane, std::move(early.message), now); !status.ok()) return status;
    }
  }
  return Status::ok_status();
}

// --- submissions

Lane* Lanes::submit(Submission&& submission, TimePoint now) {
  if (is_departure(*submission.request)) {
    leave(submission);
    return nullptr;
  }
  const LaneId id = lane_id(submission.request->process_set, submission.request->lane);
  Lane* const lane = find_or_make(id);
  if (const std::optional<Status> refused = refusal_of(*submission.request)) {
    submission.fail(*refused);
    return nullptr;
  }
  // The lane does not exist yet. Or all ranks have joined, and the set's first lane knows this but this lane does not
  // yet: a report sent now would be one of a rank that has joined.
  if (lane == nullptr || lane->has_joined() || kept_.contains(id)) {
    kept_[id].push_back(std::move(submission));
    if (lane == nullptr) ask_for(id, now);
    return nullptr;
  }
  if (submission.request->signature.collective == Collective::kJoin) {
    join(std::move(submission), now);
    return nullptr;
  }
  lane->submit(std::move(submission), now);
  return lane;
}

void Lanes::leave(const Submission& submission) {
  const auto id = static_cast<std::uint32_t>(submission.request->signature.arguments.front());
  Lane* const lane = find_or_make(id);
  if (lane == nullptr) {
    const std::string why = "there is no process set " + std::to_string(id) + " that this rank could leave.";
    return submission.fail(world_.sets.end_of(id).value_or(Status::invalid_argument(why)));
  }
  lane->leave(has_left(world_.mesh.rank()));
  submission.succeed();
}

// Asks the first lane of the set: it exists as long as the set, and its log says when all ranks have joined.
std::optional<Status> Lanes::refusal_of(const Request& request) const {
  const Lane* const first = find(lane_id(request.process_set, 0));
  if (first == nullptr) return why_gone(world_.sets, request.process_set);
  if (!first->has_joined()) return std::nullopt;
  return Status::invalid_argument("'" + request.name +
                                  "' was called after join(): this rank contributes nothing before all have joined. "
                                  "Wait for what join_async() has returned first.");
}

// Each member asks before its first request in the lane. A member that has joined learns of the lane from the log.
void Lanes::ask_for(LaneId id, TimePoint now) {
  std::shared_ptr<Operation>& asked = asked_for_[id];
  if (asked) return;
  asked = std::make_shared<Operation>();
  auto request = std::make_unique<Request>();
  request->process_set = set_of(id);
  request->signature.collective = Collective::kAddLane;
  request->signature.arguments = {lane_of(id)};
  request->name = "add_lane " + to_string(request->signature.arguments);
  request->is_cacheable = false;
  const LaneId first = lane_id(set_of(id), 0);
  PersistentOp* const op = world_.names.ops.take(first, request->name);
  find(first)->submit({std::move(request), asked, op}, now);
}

// A rank joins all lanes of a set. The log of the first lane says when all ranks have joined.
void Lanes::join(Submission&& submission, TimePoint now) {
  const std::uint32_t set = submission.request->process_set;
  find(lane_id(set, 0))->join(std::move(submission), now);
  for (std::uint32_t number = 1; number < n_lanes_of(set); ++number) {
    // A lane that does not exist here exists on no rank, or joins when it is created.
    if (Lane* lane = find(lane_id(set, number))) lane->join(join_along(), now);
  }
}

void Lanes::submit_kept(TimePoint now) {
  if (kept_.empty()) return;
  for (auto next = kept_.begin(); next != kept_.end();) {
    const LaneId id = next++->first;
    Lane* const lane = find(id);
    const auto asked = asked_for_.find(id);
    const bool is_asked_for = asked != asked_for_.end();
    if (lane != nullptr ? lane->has_joined() : is_asked_for && !asked->second->is_done()) continue;
    for (Submission& submission : take(kept_, id)) {
      if (lane != nullptr) {
        lane->submit(std::move(submission), now);
      } else {
        submission.fail(is_asked_for ? asked->second->status() : why_gone(world_.sets, set_of(id)));
      }
    }
  }
  std::erase_if(asked_for_, [](const auto& asked) { return asked.second->is_done(); });
}

bool Lanes::abort_graphs() {
  bool has_some = false;
  for (const auto& lane : lanes_) has_some = lane->abort_graphs() || has_some;
  return has_some;
}

void Lanes::give_up(const Status& why) {
  for (const auto& lane : lanes_) lane->give_up(why);
  for (const auto& [lane, submissions] : std::exchange(kept_, {})) {
    for (const Submission& submission : submissions) submission.fail(why);
  }
}

}  // namespace ciranda
