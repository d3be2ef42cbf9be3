#include "backend/online_autotuner.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ciranda {
namespace {

constexpr std::size_t kSamples = OnlineAutotuner::kTurns * OnlineAutotuner::kTimedATurn;  // of each candidate
// A candidate replaces the current one if it takes less than 7/8 of its time.
constexpr std::uint64_t kLessThan = 7;
constexpr std::uint64_t kOf = 8;
// A candidate that took this many times as long as the best is not tried again.
constexpr std::uint64_t kHopeless = 2;

std::uint64_t first_quartile(std::span<std::uint64_t> values) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace

OnlineAutotuner::Choice OnlineAutotuner::next(const Class& of) {
  State& state = states_[of.number];
  if (state.taken_ns.empty()) {
    state.by_model = of.by_model;
    state.taken_ns.resize(of.n_candidates);
    state.contenders.resize(of.n_candidates);
    std::iota(state.contenders.begin(), state.contenders.end(), std::size_t{0});
  }
  const std::size_t n = state.contenders.size();
  const std::uint64_t n_calls = state.n_calls++;
  if (n == 1 || n_calls < state.next_trial) return {state.preferred, std::nullopt};

  const auto call = static_cast<std::size_t>(n_calls - state.next_trial);
  const std::size_t turn = call / kCallsATurn / n;
  const std::size_t place = call / kCallsATurn % n;
  const std::size_t contender = turn % 2 == 0 ? place : n - 1 - place;
  constexpr std::size_t kNotTimed = kCallsATurn - kTimedATurn;
  const std::size_t call_of_turn = call % kCallsATurn;
  if (call == 0) state.samples.assign(n * kSamples, 0);
  if (call + 1 == n * kTurns * kCallsATurn) {
    state.next_trial *= kBetweenTrials;
    over_.push_back(of.number);
  }
  if (call_of_turn < kNotTimed) return {state.contenders[contender], std::nullopt};
  const std::size_t index = contender * kSamples + turn * kTimedATurn + call_of_turn - kNotTimed;
  return {state.contenders[contender], Sample{of.number, index}};
}

void OnlineAutotuner::took(const Sample& sample, std::uint64_t ns) {
  states_.at(sample.of_class).samples[sample.index] = ns;
}

std::vector<std::uint64_t> OnlineAutotuner::news() const {
  std::vector<std::uint64_t> all;
  for (const std::uint32_t number : over_) {
    const auto& samples = states_.at(number).samples;
    all.insert(all.end(), samples.begin(), samples.end());
  }
  return all;
}

std::vector<std::uint32_t> OnlineAutotuner::conclude(std::span<const std::uint64_t> news_of_all) {
  std::size_t n_of_a_rank = 0;
  for (const std::uint32_t number : over_) n_of_a_rank += states_.at(number).samples.size();
  std::size_t offset = 0;
  for (const std::uint32_t number : over_) {
    State& state = states_.at(number);
    for (std::size_t i = 0; i < state.samples.size(); ++i) {
      for (std::size_t at = offset + i; at < news_of_all.size(); at += n_of_a_rank) {
        state.samples[i] = std::min(state.samples[i], news_of_all[at]);
      }
    }
    offset += state.samples.size();
    state.choose();
  }
  return std::exchange(over_, {});
}

void OnlineAutotuner::State::choose() {
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    taken_ns[contenders[i]] = first_quartile(std::span(samples).subspan(i * kSamples, kSamples));
  }
  samples = {};
  const auto is_faster = [this](std::size_t one, std::size_t other) { return taken_ns[one] < taken_ns[other]; };
  const std::size_t best = *std::min_element(contenders.begin(), contenders.end(), is_faster);
  const std::size_t in_use = preferred.value_or(by_model);
  if (taken_ns[best] * kOf < taken_ns[in_use] * kLessThan) preferred = best;
  if (preferred == by_model) preferred.reset();
  std::erase_if(contenders, [&](std::size_t candidate) { return taken_ns[candidate] > taken_ns[best] * kHopeless; });
}

std::optional<std::uint64_t> OnlineAutotuner::took_ns(std::uint32_t of_class, std::size_t candidate) const {
  const auto found = states_.find(of_class);
  if (found == states_.end() || found->second.taken_ns[candidate] == 0) return std::nullopt;
  return found->second.taken_ns[candidate];
}

std::optional<std::size_t> OnlineAutotuner::preferred(std::uint32_t of_class) const {
  const auto found = states_.find(of_class);
  return found == states_.end() ? std::nullopt : found->second.preferred;
}

}  // namespace ciranda
