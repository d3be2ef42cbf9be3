// OneIsLate: steps to which one rank comes only when all others are about to sleep over what it has not called yet.
#pragma once

#include <atomic>
#include <thread>
#include <utility>

#include "engine/engine.hpp"

namespace ciranda::testing {

class OneIsLate {
 public:
  explicit OneIsLate(int n_ranks) : n_others_(n_ranks - 1) {}

  // The rank that is late, before its call of the step; steps are counted from 0.
  void wait_for_others(int step) const {
    while (n_about_to_sleep_ < n_others_ * (step + 1)) std::this_thread::yield();
  }
  // The others, in place of Engine::wait().
  Status wait(Engine& engine, const Engine::OperationPtr& operation) {
    bool is_counted = false;
    return engine.wait(operation, [this, &is_counted] {  // asked when it has lost patience
      if (!std::exchange(is_counted, true)) ++n_about_to_sleep_;
      return false;
    });
  }

 private:
  const int n_others_;
  std::atomic<int> n_about_to_sleep_{0};
};

}  // namespace ciranda::testing
