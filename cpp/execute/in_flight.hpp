// InFlight: the submissions of this rank that have been taken in but not completed, by ticket. Counts completed calls,
// and writes them to the recorder while it is on. Called by Lane, RoundsInMemory, RoundsByMessages, DataPlane,
// Consistency, make_plans.cc, functions.hpp, execute/outputs.hpp and execute/collectives/; held by LaneParts; one
// thread (the holder of the progress lock).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agree/persistent_op.hpp"
#include "agree/persistent_ops.hpp"
#include "base/thread_annotations.hpp"
#include "call/operation.hpp"
#include "call/request.hpp"
#include "execute/submission.hpp"
#include "observe/counters.hpp"
#include "observe/recorder.hpp"
#include "observe/ticks.hpp"

namespace ciranda {

class InFlight {
 public:
  // All arguments outlive this. `output_memory`: for the results of requests. `of_set`: the lane's from Counters, or
  // null.
  InFlight(const OutputMemory& output_memory, Recorder& recorder, Counters& counters, SetCounters* of_set)
      : output_memory_(output_memory), recorder_(recorder), counters_(counters), of_set_(of_set) {}
  ~InFlight() { counters_.leave_set(of_set_); }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  const OutputMemory& output_memory() const { return output_memory_; }

  Ticket add(Submission&& submission) {
    const Request& request = *submission.request;
    if (request.is_deferrable) ++n_deferrable_;
    if (submission.stages[Stage::kSubmitted] != 0) {
      submission.n_bytes = request.signature.n_bytes();
      submission.shown = counters_.begin_wait(
          {request.name, request.signature.collective, request.process_set, request.lane, submission.n_bytes},
          submission.stages);
    }
    const Ticket ticket = take_ticket();
    entries_[ticket] = std::move(submission);
    return ticket;
  }

  // Whether a request that may be held back has not begun to execute.
  bool has_deferrable() const { return n_deferrable_ > 0; }
  // Whether there is a request that may not be held back, or one that executes.
  bool has_undeferrable() const { return size() > n_deferrable_; }
  void begin(Ticket ticket) {
    entries_[ticket].is_executing = true;
    if (entries_[ticket].request->is_deferrable) --n_deferrable_;
  }

  Submission& at(Ticket ticket) { return entries_[ticket]; }

  Recorder& recorder() { return recorder_; }
  Counters& counters() { return counters_; }
  SetCounters* of_set() { return of_set_; }
  void note(Ticket ticket, Stage stage) {
    if (recorder_.is_on()) entries_[ticket].stages.note(stage);
  }
  // `when`: in ticks.
  void note_agreed(Ticket ticket, Path path, std::uint64_t when) {
    Stages& stages = entries_[ticket].stages;
    if (is_waiting(stages)) counters_.end_wait(entries_[ticket].shown, when);
    stages.path = path;
    stages.note(Stage::kAgreed, when);
  }

  void complete(Ticket ticket, const Status& status) REQUIRES(progress_lock) {
    Submission& done = entries_[ticket];
    if (done.request->is_deferrable && !done.is_executing) --n_deferrable_;
    if (done.stages[Stage::kSubmitted] != 0) record(done, status.kind());
    const Status outcome = status.kind() == ErrorKind::kRanksLost ? while_under_way(*done.request, status) : status;
    if (done.op != nullptr) {  // before complete(): a caller that sees the operation done may reuse the name
      done.op->keep(std::move(done.request));
      PersistentOps::release(*done.op);
    }
    const std::shared_ptr<Operation> operation = std::move(done.operation);
    done = {};
    free_.push_back(ticket);
    operation->complete(outcome);  // last: its callback may submit
  }

  // Completes all requests, or only those that are not executing.
  void complete_all(const Status& status, bool also_executing) REQUIRES(progress_lock) {
    for (Ticket ticket = 0; ticket < entries_.size(); ++ticket) {
      const Submission& entry = entries_[ticket];
      if (entry.operation && (also_executing || !entry.is_executing)) complete(ticket, status);
    }
  }

  bool empty() const { return free_.size() == entries_.size(); }
  std::size_t size() const { return entries_.size() - free_.size(); }

 private:
  Ticket take_ticket() {
    if (free_.empty()) {
      entries_.emplace_back();
      return entries_.size() - 1;
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    return ticket;
  }

  static bool is_waiting(const Stages& stages) { return stages[Stage::kSubmitted] != 0 && stages[Stage::kAgreed] == 0; }

  // The error of a lost rank does not name the calls that it ends, so each call adds its own name.
  static Status while_under_way(const Request& request, const Status& status) {
    return {status.kind(), status.message() + " " + call_text(request) + " was under way."};
  }

  void record(Submission& done, ErrorKind outcome) {
    done.stages.note(Stage::kDone);
    if (is_waiting(done.stages)) counters_.end_wait(done.shown, done.stages[Stage::kDone]);
    counters_.end(done.shown, done.stages, outcome);
    const Request& request = *done.request;
    counters_.count(request.signature.collective, done.n_bytes, done.stages, outcome, of_set_);
    if (!done.stages.is_recorded) return;
    std::optional<DataType> dtype;
    if (!request.signature.tensors.empty()) dtype = request.signature.tensors.front().dtype;
    recorder_.write(
        {request.name, request.signature.collective, outcome, request.process_set, request.lane, done.n_bytes, dtype},
        done.stages);
  }

  const OutputMemory& output_memory_;
  Recorder& recorder_;
  Counters& counters_;
  SetCounters* const of_set_;
  std::vector<Submission> entries_;  // by ticket; an entry of a free ticket has no operation
  std::vector<Ticket> free_;
  std::size_t n_deferrable_ = 0;
};

}  // namespace ciranda
