// How ranks come to rounds with the fast path of Engine::run(), for tests of what happens where all others have come.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <optional>
#include <thread>
#include <utility>

#include "engine/engine.hpp"
#include "engine/requests.hpp"

namespace ciranda::testing {

// Comes to the round; null if that did it. Another thread of the engine may have it for a moment. It may also have
// closed the round, however patient the ranks are, and then only a request goes on.
inline Engine::OperationPtr arrive(Engine& engine, const Call& call) {
  constexpr int kMostRefusals = 1000;
  for (int i = 0; i < kMostRefusals; ++i) {
    if (std::optional<Engine::OperationPtr> operation = repeat(engine, call)) return *operation;
    std::this_thread::yield();
  }
  Request request = make_request(call);
  request.is_awaited = true;
  return submit_request(engine, std::move(request));
}

// After which the name is open to rounds.
inline void agree(Engine& engine, const Call& call) {
  EXPECT_EQ(repeat(engine, call), std::nullopt);
  EXPECT_TRUE(engine.wait(submit_request(engine, make_request(call))).ok());
}

// Rounds in which rank 0 comes last, until it has needed no operation once: not in one whose round was closed.
class LastToCome {
 public:
  static constexpr int kMostRounds = 100;

  explicit LastToCome(int n_ranks) : have_come_(n_ranks), have_ended_(n_ranks) {}

  // By all ranks.
  void perform(Engine& engine, const Call& call) {
    const bool is_last = engine.rank() == 0;
    if (is_last) have_come_.arrive_and_wait();
    const Engine::OperationPtr operation = arrive(engine, call);
    if (!is_last) {
      EXPECT_NE(operation, nullptr);
      static_cast<void>(have_come_.arrive());
    }
    if (operation != nullptr) {
      EXPECT_TRUE(engine.wait(operation).ok()) << operation->status().message();
    } else if (is_last) {
      was_at_once_ = true;
    }
    have_ended_.arrive_and_wait();
  }

  bool was_at_once() const { return was_at_once_; }

 private:
  std::barrier<> have_come_;
  std::barrier<> have_ended_;
  bool was_at_once_ = false;  // written by the last rank, between both
};

}  // namespace ciranda::testing
