// Timed: a collective that tells how long it took, from when it was made until it was done.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "collective/running_collective.hpp"

namespace ciranda {

class Timed final : public RunningCollective {
 public:
  using Clock = std::chrono::steady_clock;

  // Begins now; `start` makes what is to be timed.
  template <typename Start>
  Timed(Start start, std::function<void(std::chrono::nanoseconds)> took)
      : begin_(Clock::now()), running_(start()), took_(std::move(took)) {}

  Progress step() override {
    const Progress progress = running_->step();
    if (progress == Progress::kDone) took_(Clock::now() - begin_);
    return progress;
  }
  std::vector<int> awaited() const override { return running_->awaited(); }

 private:
  Clock::time_point begin_;
  std::unique_ptr<RunningCollective> running_;
  std::function<void(std::chrono::nanoseconds)> took_;
};

}  // namespace ciranda
