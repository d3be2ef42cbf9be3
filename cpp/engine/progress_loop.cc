#include "engine/progress_loop.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/earliest.hpp"
#include "base/relax.hpp"

namespace ciranda {
namespace {

// More than a rank can be ahead of another by without a fault.
constexpr std::size_t kMostEarlyMessages = 1 << 20;
// What the queue keeps room for.
constexpr std::size_t kMostKeptSubmissions = 4096;

}  // namespace

ProgressLoop::ProgressLoop(Mesh& mesh, const Config& config, SubmissionQueue& submissions, const Names& names,
                           ProcessSets& sets, Recorder& recorder, std::span<const BackendRow> backends)
    : mesh_(mesh),
      config_(config),
      logger_(mesh.rank(), log_level_from(config.log_level)),
      submissions_(submissions),
      names_(names),
      sets_(sets),
      recorder_(recorder),
      backends_(backends),
      mux_(mesh),
      control_(mesh, logger_) {
  make_lanes(kWorldSet, *sets_.ranks(kWorldSet));
}

// --- lanes

Lane* ProgressLoop::find(LaneId id) const {
  if (id == 0) return lanes_.front().get();
  const auto found = lane_by_id_.find(id);
  return found == lane_by_id_.end() ? nullptr : found->second;
}

// Sets that need no agreement come to be by being used.
Lane* ProgressLoop::find_or_make(LaneId id) {
  Lane* lane = find(id);
  if (lane != nullptr || !needs_no_agreement(id)) return lane;
  const Ranks ranks = sets_.ranks(id);
  const bool is_ours = ranks && std::find(ranks->begin(), ranks->end(), mesh_.rank()) != ranks->end();
  return is_ours ? &make_lane(id, *ranks) : nullptr;
}

Lane& ProgressLoop::make_lane(LaneId id, const std::vector<int>& ranks) {
  SharedArena* arena = id == 0 ? mesh_.arena() : nullptr;
  lanes_.push_back(
      std::make_unique<Lane>(id, ranks, arena,
                             Lane::Surroundings{mesh_, mux_, control_, config_, logger_, names_, *this, n_met_,
                                                has_failed_, output_memory_, recorder_, backends_}));
  lane_by_id_[id] = lanes_.back().get();
  for (const Departure& departure : control_.departures()) lanes_.back()->heed(departure);
  return *lanes_.back();
}

// Those that the settings ask for. Others come to be when they are first used.
void ProgressLoop::make_lanes(std::uint32_t process_set, const std::vector<int>& ranks) {
  for (std::uint32_t lane = 0; lane < static_cast<std::uint32_t>(config_.num_lanes); ++lane) {
    make_lane(lane_id(process_set, lane), ranks);
  }
}

Status ProgressLoop::change_sets(const Request& request, std::int64_t& result) {
  if (request.signature.collective == Collective::kAddLane) return add_lane(request);
  return request.signature.collective == Collective::kAddProcessSet ? add_set(request, result)
                                                                    : remove_set(request, result);
}

Status ProgressLoop::add_set(const Request& request, std::int64_t& result) {
  const std::vector<int> ranks(request.signature.arguments.begin(), request.signature.arguments.end());
  if (const auto existing = sets_.find(ranks)) {
    return Status::invalid_argument("a process set with ranks " + to_string(ranks) + " exists already: set " +
                                    std::to_string(*existing) + ". Use that one, or remove it first.");
  }
  const std::uint32_t id = sets_.add(ranks);
  result = id;
  if (std::find(ranks.begin(), ranks.end(), mesh_.rank()) != ranks.end()) make_lanes(id, ranks);
  return Status::ok_status();
}

Status ProgressLoop::remove_set(const Request& request, std::int64_t& result) {
  const auto id = static_cast<std::uint32_t>(request.signature.arguments.front());
  result = id;
  if (!sets_.remove(id)) return Status::invalid_argument("there is no process set " + std::to_string(id) + ".");
  for (const auto& lane : lanes_) {
    if (lane->id() != 0 && set_of(lane->id()) == id) {
      lane->end(Status::aborted("process set " + std::to_string(id) + " was removed before this was done."));
    }
  }
  return Status::ok_status();
}

// At the same place of the log of the set's first lane on all members, so that none joins a lane that another lacks.
Status ProgressLoop::add_lane(const Request& request) {
  const std::vector<std::int64_t>& arguments = request.signature.arguments;
  const Ranks ranks = sets_.ranks(request.process_set);
  const bool is_possible = ranks && arguments.size() == 1 && arguments.front() >= 0 &&
                           arguments.front() < static_cast<std::int64_t>(n_lanes_of(request.process_set));
  if (!is_possible) return Status::invalid_argument("'" + request.name + "' is no lane that there can be.");
  const LaneId id = lane_id(request.process_set, static_cast<std::uint32_t>(arguments.front()));
  if (find(id) != nullptr) return Status::ok_status();
  const TimePoint now = std::chrono::steady_clock::now();
  Lane& lane = make_lane(id, *ranks);
  for (Submission& submission : kept_.take(id)) lane.submit(std::move(submission), now);
  asked_for_.erase(id);
  const bool has_joined = find(lane_id(request.process_set, 0))->has_joined();
  if (has_joined) lane.join({{}, std::make_shared<Operation>()}, now);
  return Status::ok_status();
}

void ProgressLoop::remove_lanes_that_are_over() {
  std::erase_if(lanes_, [this](const std::unique_ptr<Lane>& lane) {
    if (!lane->is_over()) return false;
    lane_by_id_.erase(lane->id());
    names_.ops.remove_lane(lane->id());
    return true;
  });
}

Status ProgressLoop::on_message(int peer, LaneId id, Message message, TimePoint now) {
  if (Lane* lane = find_or_make(id)) {
    // It may just have come to be, by the message before this one or by a thread that has formed its set.
    if (Status status = hear_early(*lane, now); !status.ok()) return status;
    return lane->on_message(peer, std::move(message), now);
  }
  const bool is_over = sets_.was_made(set_of(id)) && !sets_.ranks(set_of(id));
  if (is_over) return Status::ok_status();  // it crossed the removal of its set on the way
  if (early_.size() >= kMostEarlyMessages) {
    return Status::internal("too many messages for lanes that do not exist, the last from " + control_.peer_text(peer));
  }
  early_.push_back({peer, id, std::move(message)});
  return Status::ok_status();
}

// What came for the lane before it was known here, in that order.
Status ProgressLoop::hear_early(Lane& lane, TimePoint now) {
  if (early_.empty()) return Status::ok_status();
  const auto is_for_another = [&lane](const Early& early) { return early.lane != lane.id(); };
  const auto first = std::stable_partition(early_.begin(), early_.end(), is_for_another);
  std::vector<Early> heard(std::make_move_iterator(first), std::make_move_iterator(early_.end()));
  early_.erase(first, early_.end());
  for (Early& early : heard) {
    if (Status status = lane.on_message(early.peer, std::move(early.message), now); !status.ok()) return status;
  }
  return Status::ok_status();
}

// --- an iteration

bool ProgressLoop::run() {
  const TimePoint now = std::chrono::steady_clock::now();
  if (!kept_.is_empty()) submit_what_was_kept(now);
  bool moved = take_submissions(now);
  if (failure_) return moved;
  mesh_.poll_events();
  Result<bool> agreed = agree(now);
  Result<bool> executed = agreed.ok() ? execute(now) : Result<bool>(false);
  if (!agreed.ok() || !executed.ok()) {
    break_world(agreed.ok() ? executed.status() : agreed.status(), true);
    return true;
  }
  const Urgency urgency = control_.take_urgency();
  moved |= agreed.value();
  moved |= executed.value();
  // Data is for ranks that execute the same: each of them knows that it does.
  if (moved) mesh_.notify(urgency);
  if (moved) has_lazy_news_ = urgency == Urgency::kLazy;
  return moved;
}

Result<bool> ProgressLoop::agree(TimePoint now) {
  Result<bool> received = control_.receive(*this, now);
  if (!received.ok()) return received;
  bool moved = received.value();
  if (!early_.empty()) {
    for (Early& early : std::exchange(early_, {})) {
      if (Status status = on_message(early.peer, early.lane, std::move(early.message), now); !status.ok()) {
        return status;
      }
    }
  }
  if (Status status = control_.check_closed_peers(); !status.ok()) return status;
  // An entry of one may make others.
  for (std::size_t i = 0; i < lanes_.size(); ++i) {  // NOLINT(modernize-loop-convert)
    Result<bool> agreed = lanes_[i]->agree(now);
    if (!agreed.ok()) return agreed;
    moved |= agreed.value();
  }
  moved |= control_.send();
  heed_departures();
  return moved;
}

Result<bool> ProgressLoop::execute(TimePoint now) {
  bool moved = mux_.flush();
  bool is_any_over = false;
  for (const auto& lane : lanes_) {
    Result<bool> executed = lane->execute(now);
    if (!executed.ok()) return executed;
    moved |= executed.value();
    is_any_over |= lane->is_over();
  }
  if (is_any_over) remove_lanes_that_are_over();
  return mux_.has_made_room() || moved;
}

bool ProgressLoop::take_submissions(TimePoint now) {
  if (submissions_.is_empty()) return false;
  submissions_.take(taken_);
  for (Submission& submission : taken_) take(std::move(submission), now);
  taken_.clear();
  if (taken_.capacity() > kMostKeptSubmissions) taken_ = std::vector<Submission>();
  return true;
}

bool ProgressLoop::submit(Submission&& submission, int n_looks) {
  const TimePoint now = std::chrono::steady_clock::now();
  const std::shared_ptr<Operation> operation = submission.operation;
  Lane* lane = take(std::move(submission), now);
  if (lane != nullptr && lane->awaits_inputs() && control_.send()) mesh_.notify(control_.take_urgency());
  for (int i = 0; lane != nullptr && !lane->rounds().empty() && i < n_looks; ++i) {
    relax();
    lane->rounds().meet(now);
  }
  return operation->is_done() || (lane != nullptr && lane->rounds().holds(*operation));
}

// Returns the lane that has it; null if it is not for one.
Lane* ProgressLoop::take(Submission&& submission, TimePoint now) {
  const LaneId id = lane_id(submission.request.process_set, submission.request.lane);
  if (is_numbered(submission.request)) {
    names_.automatic.number(submission.request);
    submission.op = names_.ops.take(id, submission.request.name);
  }
  Lane* lane = failure_ ? nullptr : find_or_make(id);
  if (const std::optional<Status> refused = refusal_of(submission.request)) {
    std::vector<Submission> alone;
    alone.push_back(std::move(submission));
    fail(std::move(alone), *refused);
    return nullptr;
  }
  if (must_wait(id, lane)) {
    kept_.keep(id, std::move(submission));
    if (lane == nullptr) ask_for_lane(id, now);
    return nullptr;
  }
  if (submission.request.signature.collective == Collective::kJoin) {
    join(std::move(submission), now);
    return nullptr;
  }
  lane->submit(std::move(submission), now);
  return lane;
}

// What counts is the first lane of the set, which there is as long as the set, and whose log tells when all have
// joined.
std::optional<Status> ProgressLoop::refusal_of(const Request& request) const {
  if (failure_) return failure_;
  const Lane* const first = find(lane_id(request.process_set, 0));
  if (first == nullptr) {
    return Status::aborted("process set " + std::to_string(request.process_set) + " has been removed.");
  }
  if (!first->has_joined()) return std::nullopt;
  return Status::invalid_argument("'" + request.name +
                                  "' was called after join(): this rank contributes nothing before all have joined. "
                                  "Wait for what join_async() has returned first.");
}

// The lane is to be made. Or all ranks have joined, which the set's first lane knows and this one does not yet: what
// was reported now would come from a rank that has joined. REQUIRES: refusal_of() has none.
bool ProgressLoop::must_wait(LaneId id, const Lane* lane) const {
  return lane == nullptr || lane->has_joined() || kept_.has_any_for(id);
}

// All members do, each before its first request there; who has joined hears of it by the log.
void ProgressLoop::ask_for_lane(LaneId id, TimePoint now) {
  std::shared_ptr<Operation>& asked = asked_for_[id];
  if (asked) return;
  asked = std::make_shared<Operation>();
  Request request;
  request.process_set = set_of(id);
  request.signature.collective = Collective::kAddLane;
  request.signature.arguments = {lane_of(id)};
  request.name = "add_lane " + to_string(request.signature.arguments);
  request.is_cacheable = false;
  const LaneId first = lane_id(set_of(id), 0);
  PersistentOp* const op = names_.ops.take(first, request.name);
  find(first)->submit({std::move(request), asked, op}, now);
}

void ProgressLoop::submit_what_was_kept(TimePoint now) {
  std::erase_if(asked_for_, [this](const auto& asked) {
    if (!asked.second->is_done()) return false;
    if (find(asked.first) == nullptr) fail(kept_.take(asked.first), asked.second->status());
    return true;
  });
  for (const LaneId id : kept_.lanes()) {
    Lane* lane = find(id);
    if (lane == nullptr && asked_for_.contains(id)) continue;
    if (lane == nullptr) {
      fail(kept_.take(id), Status::aborted("process set " + std::to_string(set_of(id)) + " has been removed."));
    } else if (!lane->has_joined()) {
      for (Submission& submission : kept_.take(id)) lane->submit(std::move(submission), now);
    }
  }
}

void ProgressLoop::fail(std::vector<Submission> submissions, const Status& why) {
  for (Submission& submission : submissions) {
    if (submission.op != nullptr) names_.ops.release(*submission.op);
    submission.operation->complete(why);
  }
}

// A rank joins all lanes of a set; the first one's log tells when.
void ProgressLoop::join(Submission&& submission, TimePoint now) {
  const std::uint32_t set = submission.request.process_set;
  for (std::uint32_t number = 0; number < n_lanes_of(set); ++number) {
    Lane* lane = find(lane_id(set, number));
    if (lane == nullptr) continue;  // it is not there on any rank, or will join when it comes to be
    if (number == 0) {
      lane->join(std::move(submission), now);
    } else {
      lane->join({{}, std::make_shared<Operation>()}, now);
    }
  }
}

// --- the end

void ProgressLoop::heed_departures() {
  const std::vector<Departure>& departures = control_.departures();
  for (; n_departures_heeded_ < departures.size(); ++n_departures_heeded_) {
    has_failed_.store(true);
    for (const auto& lane : lanes_) lane->heed(departures[n_departures_heeded_]);
  }
  for (const auto& lane : lanes_) lane->fail_what_cannot_come();
}

void ProgressLoop::break_world(Status why, bool tell_others) {
  if (failure_) return;
  failure_ = std::move(why);
  keep_own_memory();
  has_failed_.store(true);
  for (const auto& lane : lanes_) lane->give_up(*failure_);
  fail(kept_.take_all(), *failure_);
  if (!tell_others) return;
  control_.say_abort(*failure_);
  control_.send();
  mesh_.notify();
}

void ProgressLoop::expect_no_more() {
  if (failure_) return;
  take_submissions(std::chrono::steady_clock::now());
  bool has_said_something = false;
  for (const auto& lane : lanes_) has_said_something |= lane->expect_no_more();
  if (has_said_something) run();
}

void ProgressLoop::leave_rounds() {
  if (failure_) return;
  for (const auto& lane : lanes_) lane->rounds().leave();
}

void ProgressLoop::say_bye() {
  const Status ended = Status::aborted("rank " + std::to_string(mesh_.rank()) + " shut down before this was done.");
  if (!failure_) {
    std::vector<ByeMessage::LaneEnd> ends;
    for (const auto& lane : lanes_) ends.push_back({lane->id(), lane->data().n_executed()});
    control_.say_bye(std::move(ends));
  }
  const bool is_cut_short =
      std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return !lane->data().is_idle(); });
  if (is_cut_short) keep_own_memory();
  for (const auto& lane : lanes_) lane->give_up(ended);
  fail(kept_.take_all(), ended);
  run();
}

// A rank that is not waited for any longer may still be at a collective: stopped, it goes on when it can, with memory
// that it has mapped. So those who have it for their own must not share it when they are told that this has failed.
void ProgressLoop::keep_own_memory() {
  const SharedArena* arena = mesh_.arena();
  if (arena == nullptr) return;
  if (const Status status = arena->regions().make_private(); !status.ok()) {
    logger_.warning(status.message() + ": a rank that is not gone may still write to tensors in shared memory");
  }
}

bool ProgressLoop::is_bye_known() const {
  if (failure_) return true;
  if (!control_.is_bye_known()) return false;
  for (int peer = 0; peer < mesh_.size(); ++peer) {
    if (!control_.is_gone(peer) && !mux_.is_flushed(peer)) return false;
  }
  return true;
}

void ProgressLoop::insist() {
  if (std::exchange(has_lazy_news_, false)) mesh_.notify(Urgency::kUrgent);
}

bool ProgressLoop::awaits_lazy_news() const {
  return mux_.has_unsent() || control_.has_unsent() ||
         std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->awaits_lazy_news(); });
}

bool ProgressLoop::has_work() const {
  return !submissions_.is_empty() ||
         std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->has_pending(); });
}

std::optional<TimePoint> ProgressLoop::next_deadline() const {
  if (failure_) return std::nullopt;
  std::optional<TimePoint> next;
  for (const auto& lane : lanes_) next = earliest(next, lane->next_deadline());
  return next;
}

}  // namespace ciranda
