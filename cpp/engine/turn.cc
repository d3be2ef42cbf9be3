#include "engine/turn.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ciranda {
namespace {

std::chrono::nanoseconds seconds(double value) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(value));
}

NativeOptions native_options(const Config& config) {
  NativeOptions options;
  options.one_shot_bytes = static_cast<std::size_t>(config.one_shot_bytes);
  options.segment_bytes = static_cast<std::size_t>(config.slot_bytes);
  return options;
}

}  // namespace

Turn::Turn(Mesh& mesh, const Config& config, SubmissionQueue& submissions, NamesInUse& names)
    : mesh_(mesh),
      logger_(mesh.rank(), log_level_from(config.log_level)),
      submissions_(submissions),
      names_(names),
      in_flight_(names),
      control_(mesh, config, logger_),
      data_(mesh, in_flight_, native_options(config)),
      stall_warning_(seconds(config.stall_warning_seconds)),
      stall_shutdown_(seconds(config.stall_shutdown_seconds)) {}

bool Turn::run() {
  const TimePoint now = std::chrono::steady_clock::now();
  bool moved = take_submissions(now);
  if (failure_) return moved;
  mesh_.poll_events();
  Result<bool> stepped = control_.step(data_.is_idle(), now, actions_);
  apply(actions_);
  if (!stepped.ok()) {
    break_circle(stepped.status(), true);
    return true;
  }
  moved |= stepped.value();
  heed_departure();
  const bool executed = execute(now);
  const Urgency urgency = control_.take_urgency();
  if (moved || executed) mesh_.notify(executed ? Urgency::kUrgent : urgency);
  return moved || executed;
}

bool Turn::take_submissions(TimePoint now) {
  if (submissions_.is_empty()) return false;
  for (SubmissionQueue::Submission& submission : submissions_.take()) {
    if (failure_ || parting_) {
      if (!submission.is_duplicate) names_.release(submission.request.name);
      submission.operation->complete(failure_ ? *failure_ : *parting_);
      continue;
    }
    const Participant::Ticket ticket =
        in_flight_.add(std::move(submission.request), std::move(submission.operation), submission.is_duplicate);
    control_.announce(in_flight_.at(ticket).request, ticket, submission.is_duplicate, now);
  }
  has_said_waiting_ = false;
  return true;
}

void Turn::apply(std::vector<Participant::Action>& actions) {
  if (const auto& departure = control_.departure()) log_end_ = std::min(log_end_, departure->log_index);
  for (Participant::Action& action : actions) {
    if (data_.n_enqueued() < log_end_) data_.enqueue(std::move(action));
  }
  actions.clear();
}

bool Turn::execute(TimePoint now) {
  if (data_.is_idle()) {
    stuck_since_.reset();
    return false;
  }
  Result<bool> stepped = data_.step();
  if (!stepped.ok()) {
    break_circle(stepped.status(), true);
    return true;
  }
  if (stepped.value()) {
    stuck_since_.reset();
    return true;
  }
  if (!stuck_since_) {
    stuck_since_ = now;
    next_stuck_report_ = now + stall_warning_;
  }
  watch_wire(now);
  return false;
}

// All ranks were ready, and yet nothing moves: a peer was stopped, or a link is cut, in the middle of the data.
void Turn::watch_wire(TimePoint now) {
  if (stall_warning_.count() == 0 || now < next_stuck_report_) return;
  const auto waited = now - *stuck_since_;
  std::string text = data_.describe_current() + " began on all ranks but has not moved for " +
                     std::to_string(std::chrono::duration_cast<std::chrono::seconds>(waited).count()) +
                     " s. Waiting for";
  for (const int rank : data_.awaited()) text += " " + control_.peer_text(rank);
  text += ": stopped, or its link is cut.";
  if (stall_shutdown_.count() > 0 && waited >= stall_shutdown_) {
    break_circle(Status::timeout(text), true);
    return;
  }
  logger_.warning(text);
  next_stuck_report_ = now + stall_warning_;
}

// Entries that the departed rank took part in are still carried out; everything after them cannot be.
void Turn::heed_departure() {
  const auto& departure = control_.departure();
  if (!departure || failure_) return;
  if (!parting_) {
    parting_ = Status::aborted(control_.peer_text(departure->rank) +
                               " has shut down, so nothing that needs all ranks can be done any more. Ranks must make "
                               "the same number of calls before they shut down.");
  }
  data_.give_up_from(departure->log_index, *parting_);
  if (control_.n_logged() >= departure->log_index) in_flight_.complete_all(*parting_, false);
}

void Turn::break_circle(Status why, bool tell_others) {
  if (failure_) return;
  failure_ = std::move(why);
  data_.give_up_from(0, *failure_);
  in_flight_.complete_all(*failure_, true);
  if (!tell_others) return;
  log_end_ = 0;
  control_.say_abort(*failure_);
  [[maybe_unused]] const auto sent = control_.step(true, std::chrono::steady_clock::now(), actions_);
  actions_.clear();
  mesh_.notify();
}

void Turn::expect_no_more() {
  if (has_said_waiting_ || failure_) return;
  take_submissions(std::chrono::steady_clock::now());
  if (!in_flight_.has_deferrable()) return;
  has_said_waiting_ = true;
  control_.say_waiting();
  run();
}

void Turn::say_bye() {
  const std::uint64_t log_index = data_.n_executed();
  const Status ended = Status::aborted("rank " + std::to_string(mesh_.rank()) + " shut down before this was done.");
  if (!failure_) control_.say_bye(log_index);
  log_end_ = 0;
  data_.give_up_from(0, ended);
  in_flight_.complete_all(ended, true);
  if (!parting_) parting_ = ended;
  run();
}

std::optional<TimePoint> Turn::next_deadline() const {
  if (failure_) return std::nullopt;
  std::optional<TimePoint> next = control_.next_deadline();
  if (stuck_since_ && stall_warning_.count() > 0 && (!next || next_stuck_report_ < *next)) next = next_stuck_report_;
  return next;
}

}  // namespace ciranda
