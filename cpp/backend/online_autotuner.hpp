// OnlineAutotuner: what the calls of this job took, beside what the cost model expects; and for which sizes another
// way than the model's is taken because of it.
//
// Calls are sorted into classes. After 16 calls of a class comes a *trial*, and after 256, 4096 and so on: the next
// calls go each way in turn, and every rank times them. When it is over ranks tell each other their times, at
// the same place of the log, and all conclude the same. So no clock is read but in trials, and the choice changes a few
// times at most. It changes only for a way that took an eighth less than the one in use; and what took twice as long as
// the best is not tried again.
//
// The time of a call is the least that any rank measured: that of the rank that came last, and so waited for nobody.
// (Where others are done later than it, what it measured is too little: see CostModel::unseen_ns.)
// The time of a way is the first quartile of its calls', because what disturbs them only makes them longer.
// Pure, but for the times that it is given; one thread. Which way a call goes depends on the calls before it alone, and
// on what was told: REQUIRES the same order of calls on all ranks.
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
  static constexpr std::uint64_t kBetweenTrials = 16;  // times as many calls
  // In a trial each way has so many turns of so many calls, of which the last are timed: by then both slots of shared
  // memory, which calls use in turn, lie in the caches as this way leaves them there.
  static constexpr std::size_t kTurns = 4;
  static constexpr std::size_t kCallsATurn = 4;
  static constexpr std::size_t kTimedATurn = 2;

  // What is known about a class: `n_ways` (at least one, numbered from 0) and `by_model` are always the same for it.
  struct Class {
    std::uint32_t number;
    std::size_t n_ways;
    std::size_t by_model;  // the way that the model takes
  };
  struct Sample {
    std::uint32_t of_class;
    std::size_t index;
  };
  struct Call {
    std::optional<std::size_t> way;  // none: as the model says
    std::optional<Sample> sample;    // to be timed
  };

  // The next call of a class.
  Call next(const Class& of);
  void took(const Sample& sample, std::uint64_t ns);

  // What was timed in a trial that is over; nothing if none is. REQUIRES, here and below: what it timed is done, and
  // all ranks are at this place of the log.
  std::vector<std::uint64_t> news() const;
  // The news of all ranks, one after the other.
  void conclude(std::span<const std::uint64_t> news_of_all);

  // What the last trial found a way to take; none without.
  std::optional<std::uint64_t> took_ns(std::uint32_t of_class, std::size_t way) const;
  // The way in use, if it is not left to the model.
  std::optional<std::size_t> preferred(std::uint32_t of_class) const;

 private:
  struct State {
    std::size_t by_model = 0;
    std::vector<std::size_t> contenders;  // the ways that are still tried
    std::uint64_t n_calls = 0;
    std::uint64_t next_trial = kFirstTrial;
    std::vector<std::uint64_t> samples;   // [contender][timed call], of the trial at hand
    std::vector<std::uint64_t> taken_ns;  // [way], by the last trial of each
    std::optional<std::size_t> preferred;

    void choose();
  };

  std::unordered_map<std::uint32_t, State> states_;
  std::vector<std::uint32_t> over_;  // classes whose trial is
};

}  // namespace ciranda
