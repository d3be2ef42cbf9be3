#include "engine/progress_loop.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/earliest.hpp"
#include "base/relax.hpp"

namespace ciranda {

namespace {

constexpr std::chrono::milliseconds kBetweenNotes{500};

}  // namespace

ProgressLoop::ProgressLoop(WorldParts& world) : mesh_(world.mesh), world_(world), lanes_(world) {}

// --- an iteration

bool ProgressLoop::run() {
  const TimePoint now = std::chrono::steady_clock::now();
  if (now >= next_note_) note_state(now);
  lanes_.submit_kept(now);
  bool moved = take_submissions(now);
  mesh_.poll_events();
  if (failure_) {
    if (!world_.control.send()) return moved;  // the abort message may be behind an input for which there was no room
    mesh_.notify();
    return true;
  }
  Result<bool> agreed = agree(now);
  Result<bool> executed = agreed.ok() ? execute(now) : Result<bool>(false);
  if (!agreed.ok() || !executed.ok()) {
    break_world(agreed.ok() ? executed.status() : agreed.status());
    return true;
  }
  const Urgency urgency = world_.control.take_urgency();
  moved |= agreed.value();
  moved |= executed.value();
  // Data is not urgent: its receivers execute the same entry, so they wait for it by themselves.
  if (moved) mesh_.notify(urgency);
  if (moved) has_lazy_news_ = urgency == Urgency::kLazy;
  return moved;
}

Result<bool> ProgressLoop::agree(TimePoint now) {
  Result<bool> received = world_.control.receive(lanes_, now);
  if (!received.ok()) return received;
  bool moved = received.value();
  if (Status status = world_.wake->failure(); !status.ok()) return status;
  if (Status status = lanes_.deliver_kept(now); !status.ok()) return status;
  if (Status status = world_.control.check_closed_peers(); !status.ok()) return status;
  // By index, since an entry of one lane may create further lanes.
  for (std::size_t i = 0; i < lanes_.all().size(); ++i) {  // NOLINT(modernize-loop-convert)
    Result<bool> agreed = lanes_.all()[i]->agree(now);
    if (!agreed.ok()) return agreed;
    moved |= agreed.value();
  }
  moved |= world_.control.send();
  handle_departures();
  return moved;
}

Result<bool> ProgressLoop::execute(TimePoint now) {
  bool moved = world_.mux.flush();
  bool is_any_over = false;
  for (const auto& lane : lanes_.all()) {
    Result<bool> executed = lane->execute(now);
    if (!executed.ok()) return executed;
    moved |= executed.value();
    is_any_over |= lane->is_over();
  }
  if (is_any_over) lanes_.remove_those_that_are_over();
  return world_.mux.has_made_room() || moved;
}

// Copies to the page of counters, now and then, what the kernel and other parts count by themselves.
void ProgressLoop::note_state(TimePoint now) {
  next_note_ = now + kBetweenNotes;
  for (int peer = 0; peer < mesh_.size(); ++peer) {
    if (peer == mesh_.rank()) continue;
    const Traffic traffic = mesh_.traffic(peer);
    world_.counters.note_link(peer, {traffic.n_sent, traffic.n_received, traffic.n_retries, traffic.n_queued});
  }
  std::size_t slot_bytes = 0;
  for (const auto& lane : lanes_.all()) slot_bytes += lane->n_slot_bytes();
  world_.counters.note_slots(slot_bytes);
  world_.note_memory();
}

bool ProgressLoop::take_submissions(TimePoint now, const Operation* awaited) {
  if (submissions_.is_empty()) return false;
  submissions_.take(taken_);
  if (taken_.size() == 1 && taken_.front().operation.get() == awaited) taken_.front().is_waited_for = true;
  for (Submission& submission : taken_) take(std::move(submission), now);
  taken_.clear();
  if (taken_.capacity() > kMostRoomKept) taken_ = std::vector<Submission>();
  return true;
}

bool ProgressLoop::submit(Submission&& submission, int n_looks) {
  const TimePoint now = std::chrono::steady_clock::now();
  const std::shared_ptr<Operation> operation = submission.operation;
  Lane* lane = take(std::move(submission), now);
  if (lane != nullptr && lane->awaits_inputs() && world_.control.send()) mesh_.notify(world_.control.take_urgency());
  for (int i = 0; lane != nullptr && !lane->rounds().empty() && i < n_looks; ++i) {
    relax();
    lane->rounds().poll(now);
  }
  return operation->is_done() || (lane != nullptr && lane->rounds().holds(*operation));
}

// Returns the lane that has taken the submission; null if none has.
Lane* ProgressLoop::take(Submission&& submission, TimePoint now) {
  last_report_.reset();
  if (is_numbered(*submission.request)) submission.op = world_.names.number(*submission.request);
  if (!failure_) return lanes_.submit(std::move(submission), now);
  submission.fail(*failure_);
  return nullptr;
}

void ProgressLoop::handle_departures() {
  const std::vector<Departure>& departures = world_.control.departures();
  for (; n_departures_handled_ < departures.size(); ++n_departures_handled_) {
    world_.has_failed.store(true);
    const int rank = departures[n_departures_handled_].rank;
    world_.logger.later(LogLevel::kDebug, [&] { return mesh_.peer(rank).text() + " has left the world"; });
    for (const auto& lane : lanes_.all()) lane->on_departure(departures[n_departures_handled_]);
  }
  for (const auto& lane : lanes_.all()) lane->fail_impossible();
}

bool ProgressLoop::is_at_round() const {
  return lanes_.has_any([](Lane& lane) REQUIRES(progress_lock) { return !lane.rounds().empty(); });
}

// --- before this rank sleeps

void ProgressLoop::expect_no_more(const Operation* awaited) {
  if (failure_) return;
  take_submissions(std::chrono::steady_clock::now(), awaited);
  bool has_reported = false;
  for (const auto& lane : lanes_.all()) has_reported |= lane->expect_no_more();
  if (has_reported) run();
}

Sleeper ProgressLoop::stop_looking(bool is_any_waiting) {
  if (is_any_waiting) expect_no_more();
  for (const auto& lane : lanes_.all()) lane->rounds().withdraw();  // also the rounds of calls that were just taken in
  if (is_any_waiting && std::exchange(has_lazy_news_, false)) mesh_.notify(Urgency::kUrgent);
  const bool awaits_lazy_news =
      is_any_waiting || world_.mux.has_unsent() || world_.control.has_unsent() ||
      lanes_.has_any([](const Lane& lane) REQUIRES(progress_lock) { return lane.awaits_lazy_news(); });
  if (awaits_lazy_news) return Sleeper::kAwaits;
  return has_work() ? Sleeper::kIdle : Sleeper::kResting;
}

bool ProgressLoop::has_work() const {
  return !submissions_.is_empty() ||
         lanes_.has_any([](const Lane& lane) REQUIRES(progress_lock) { return lane.has_pending(); });
}

std::optional<TimePoint> ProgressLoop::next_deadline() const {
  if (failure_) return std::nullopt;
  std::optional<TimePoint> next;
  for (const auto& lane : lanes_.all()) next = earliest(next, lane->next_deadline());
  return next;
}

// --- while all threads wait

bool ProgressLoop::has_to_stand() const {
  const Lane* const lane = failure_ ? nullptr : lanes_.find_only_pending();
  const auto standing = lane == nullptr ? std::nullopt : lane->standing();
  if (!standing) return false;
  return !last_report_ || last_report_->lane != lane->id() || last_report_->standing != *standing;
}

void ProgressLoop::report_standstill() {
  Lane& lane = *lanes_.find_only_pending();
  last_report_ = StandstillReport{lane.id(), *lane.standing()};
  lane.report(last_report_->standing, std::chrono::steady_clock::now());
  run();
}

void ProgressLoop::withdraw_standstill() {
  const auto reported = std::exchange(last_report_, std::nullopt);
  Lane* const lane = reported && !failure_ ? lanes_.find(reported->lane) : nullptr;
  if (lane == nullptr) return;
  lane->report(StandingMessage{}, std::chrono::steady_clock::now());
  run();
}

// --- the end

void ProgressLoop::break_world(Status why) {
  failure_ = world_.unended.fail(why);  // what is void here is no other rank's affair
  if (lanes_.abort_graphs()) {
    failure_ = Status(failure_->kind(), failure_->message() +
                                            " Launches of CUDA graphs with collectives that had not ended are void, "
                                            "and later ones move nothing: capture them anew.");
  }
  const std::string& message = failure_->message();
  if (message != why.message()) world_.logger.warning(message);  // for who makes no further call
  world_.logger.later(LogLevel::kDebug, [&] { return "the world has failed: " + message; });
  keep_own_memory();
  world_.has_failed.store(true);
  lanes_.give_up(*failure_);
  lanes_.remove_all_but_first();
  world_.control.send_abort(why);
  world_.control.send();
  mesh_.notify();
}

// Another rank may still be executing a collective that has failed here: if it was stopped, it continues later, and
// writes to the memory that it has mapped. So this rank stops sharing its own memory before its callers learn of the
// failure.
void ProgressLoop::keep_own_memory() {
  const SharedArena* arena = mesh_.arena();
  if (arena == nullptr) return;
  if (const Status status = arena->regions().make_private(); !status.ok()) {
    world_.logger.warning(status.message() + ": a rank that has not ended may still write to tensors in shared memory");
  }
}

void ProgressLoop::send_bye() {
  note_state(std::chrono::steady_clock::now());
  if (!failure_) {
    std::vector<ByeMessage::LaneEnd> ends;
    for (const auto& lane : lanes_.all()) ends.push_back({lane->id(), lane->data().n_executed(), lane->first_leaver()});
    // Other ranks may still be ending these sets, or may not have received the end yet.
    constexpr auto kAll = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint32_t id : world_.sets.ended()) ends.push_back({lane_id(id, 0), kAll, -1});
    world_.control.send_bye(std::move(ends));
  }
  const bool is_cut_short =
      lanes_.has_any([](const Lane& lane) REQUIRES(progress_lock) { return !lane.data().is_idle(); });
  if (is_cut_short) keep_own_memory();
  lanes_.give_up(Status::aborted("rank " + std::to_string(mesh_.rank()) + " shut down before this was done."));
  run();
}

void ProgressLoop::send_gone() {
  world_.control.send_gone();
  mesh_.notify();
}

bool ProgressLoop::is_bye_known() const {
  if (failure_) return world_.control.is_abort_sent();
  if (!world_.control.is_bye_known()) return false;
  const std::vector<int>& open = world_.control.open_peers();
  return std::all_of(open.begin(), open.end(),
                     [this](int peer) REQUIRES(progress_lock) { return world_.mux.is_flushed(peer); });
}

}  // namespace ciranda
