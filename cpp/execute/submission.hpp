// Submission: a request in the engine, from its submission to its completion. Called by Engine, which makes it, and
// ProgressThreads, which pushes it to the SubmissionQueue, on any thread; then by ProgressLoop, Lanes, Lane and
// InFlight (the holder of the progress lock).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "agree/persistent_ops.hpp"
#include "base/status.hpp"
#include "base/thread_annotations.hpp"
#include "call/operation.hpp"
#include "call/request.hpp"
#include "execute/staged.hpp"
#include "observe/shown_calls.hpp"
#include "observe/stages.hpp"

namespace ciranda {

struct Submission {
  std::unique_ptr<Request> request = {};
  std::shared_ptr<Operation> operation = {};
  PersistentOp* op = nullptr;           // held by this; null: a duplicate, or not prepared, or not numbered yet
  Stages stages = {};                   // the stages recorded so far
  std::unique_ptr<Staged> staged = {};  // null if its tensors lie in host memory
  bool is_waited_for = false;           // when taken in: a thread waits for it that has submitted nothing after it

  // In flight:
  bool is_executing = false;
  std::uint16_t shown = ShownCalls::kNoEntry;  // its entry on the page of counters
  std::size_t n_bytes = 0;                     // of the tensors that this rank gave; counted only where it has one
  Status outcome = Status::ok_status();        // of its execution
  std::shared_ptr<std::byte> scratch = {};     // memory for unneeded results, for instance of a rank that has joined

  // Before it is in flight.
  void fail(const Status& why) const REQUIRES(progress_lock) {
    if (op != nullptr) PersistentOps::release(*op);
    operation->complete(why);
  }
  // Completes a request that concerns this rank alone, without an error.
  void succeed() const REQUIRES(progress_lock) { fail(Status::ok_status()); }
};

class SubmissionQueue {
 public:
  void push(Submission&& submission) {
    const std::lock_guard lock(mutex_);
    submissions_.push_back(std::move(submission));
    is_empty_.store(false);
  }
  bool is_empty() const { return is_empty_.load(); }
  // Swaps the queue's contents with `taken`, so that the queue reuses its memory. REQUIRES: `taken` is empty.
  void take(std::vector<Submission>& taken) {
    const std::lock_guard lock(mutex_);
    taken.swap(submissions_);
    is_empty_.store(true);
  }

 private:
  std::mutex mutex_;
  std::vector<Submission> submissions_;
  std::atomic<bool> is_empty_{true};
};

}  // namespace ciranda
