// SubmissionQueue: where any thread leaves a request, to be taken in by the next iteration.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "agree/persistent_op.hpp"
#include "call/operation.hpp"
#include "call/request.hpp"
#include "execute/staged.hpp"

namespace ciranda {

struct Submission {
  Request request;
  std::shared_ptr<Operation> operation;
  PersistentOp* op = nullptr;           // that it holds; null: a duplicate, or not numbered yet
  std::uint64_t submitted = 0;          // in ticks; 0 where that is not recorded
  std::unique_ptr<Staged> staged = {};  // null: its tensors lie in host memory
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
