// OnlineAutotuner: times calls of this job, and replaces the cost model's choice for the sizes at which another
// *candidate* (an algorithm with a segment size) is faster.
//
// Calls are sorted into classes. A *trial* starts after 16 calls of a class, 256, 4096 and so on: the next calls use
// each candidate in turn, and every rank times them. When it has ended, ranks exchange their times at the same position
// in the log, and all draw the same conclusion. So the clock is read only in trials, and the choice changes a few times
// at most. A candidate replaces the current one only if it takes an eighth less time. A candidate that takes twice the
// time of the best is not tried again.
//
// The time of a call is the least that any rank measured: that of the last rank to arrive, which waits for no other.
// (If others finish after that rank, this time is too short: see CostModel::unseen_ns.) The time of a candidate is the
// first quartile of its calls, because disturbances only make calls longer. Called by NativeBackend; pure, except for
// the times passed in. The candidate of a call depends only on earlier calls and on the exchanged times. REQUIRES: the
// same order of calls on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace ciranda {

class OnlineAutotuner {
 public:
  static constexpr std::uint64_t kFirstTrial = 16;
  static constexpr std::uint64_t kBetweenTrials = 16;  // factor between the starts of two trials, in calls
  // In a trial each candidate has kTurns turns of kCallsATurn calls, of which the last kTimedATurn are timed: by then
  // both slots of shared memory, which calls use alternately, are in the caches as this candidate leaves them.
  static constexpr std::size_t kTurns = 4;
  static constexpr std::size_t kCallsATurn = 4;
  static constexpr std::size_t kTimedATurn = 2;

  // A class of calls. `n_candidates` (at least one, numbered from 0) and `by_model` never change for a class.
  struct Class {
    std::uint32_t number;
    std::size_t n_candidates;
    std::size_t by_model;  // the cost model's choice
  };
  struct Sample {
    std::uint32_t of_class;
    std::size_t index;
  };
  struct Choice {
    std::optional<std::size_t> candidate;  // none: the cost model's choice
    std::optional<Sample> sample;          // set if the call must be timed
  };

  // Chooses the candidate of the next call of a class.
  Choice next(const Class& of);
  void took(const Sample& sample, std::uint64_t ns);

  // The times of the trials that have ended; empty if none has. REQUIRES, also for conclude(): all timed calls are
  // done, and all ranks are at this position in the log.
  std::vector<std::uint64_t> news() const;
  // `news_of_all`: the news of all ranks, concatenated. Returns the classes whose trial has ended.
  std::vector<std::uint32_t> conclude(std::span<const std::uint64_t> news_of_all);

  // The time of a candidate in its last trial; none if it had no trial.
  std::optional<std::uint64_t> took_ns(std::uint32_t of_class, std::size_t candidate) const;
  // The current candidate, if it is not the cost model's choice.
  std::optional<std::size_t> preferred(std::uint32_t of_class) const;

 private:
  struct State {
    std::size_t by_model = 0;
    std::vector<std::size_t> contenders;  // the candidates that trials still include
    std::uint64_t n_calls = 0;
    std::uint64_t next_trial = kFirstTrial;
    std::vector<std::uint64_t> samples;   // [contender][timed call], of the current trial
    std::vector<std::uint64_t> taken_ns;  // [candidate], by the last trial of each
    std::optional<std::size_t> preferred;

    void choose();
  };

  std::unordered_map<std::uint32_t, State> states_;
  std::vector<std::uint32_t> over_;  // classes whose trial has ended
};

}  // namespace ciranda
