// Submission: a request on its way through the engine, from its submission to its completion. It is left in the
// SubmissionQueue by any thread, taken in by the next iteration, and in flight from then on (in_flight.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "agree/persistent_ops.hpp"
#include "base/status.hpp"
#include "call/operation.hpp"
#include "call/request.hpp"
#include "execute/staged.hpp"
#include "observe/stages.hpp"

namespace ciranda {

struct Submission {
  std::unique_ptr<Request> request = {};
  std::shared_ptr<Operation> operation = {};
  PersistentOp* op = nullptr;           // that it holds; null: a duplicate, or not prepared, or not numbered yet
  Stages stages = {};                   // those in which it was recorded
  std::unique_ptr<Staged> staged = {};  // null: its tensors lie in host memory
  bool is_waited_for = false;           // by a thread that has submitted nothing after it, before it is taken in

  // In flight:
  bool is_executing = false;
  Status outcome = Status::ok_status();     // of what was carried out, for those who execute
  std::shared_ptr<std::byte> scratch = {};  // memory of results that nobody needs, as of a rank that has joined

  // Before it is in flight. The holder of the progress lock's.
  void fail(const Status& why) const {
    if (op != nullptr) PersistentOps::release(*op);
    operation->complete(why);
  }
  // What concerns this rank alone is done.
  void succeed() const { fail(Status::ok_status()); }
};

class SubmissionQueue {
 public:
  void push(Submission&& submission) {
    const std::lock_guard lock(mutex_);
    submissions_.push_back(std::move(submission));
    is_empty_.store(false);
  }
  bool is_empty() const { return is_empty_.load(); }
  // What is in the queue comes into `taken`, whose memory the queue uses next. REQUIRES: `taken` is empty.
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
