#include "observe/counters.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/fence.hpp"
#include "observe/ticks.hpp"

namespace ciranda {

static_assert(kNumCollectives <= kPageCollectives);

namespace {

std::uint64_t since_epoch(std::chrono::steady_clock::time_point when) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count());
}

}  // namespace

// An earlier world of this process, or another program that had this place before, may have left its counters.
Counters::Counters(const std::string& path, int rank, int size)
    : memory_(path), shown_(memory_.page()), ns_per_tick_(ns_per_tick()) {
  const std::uint64_t generation = load(own().generation) | 1U;
  own().generation.store(generation, std::memory_order_release);
  full_fence();
  clear();
  store(own().version, kPageVersion);
  store(own().pid, static_cast<std::uint64_t>(::getpid()));
  store(own().rank, static_cast<std::uint64_t>(rank));
  store(own().size, static_cast<std::uint64_t>(size));
  store(own().began_ns, static_cast<std::uint64_t>(monotonic_ns()));
  own().magic.store(kPageMagic, std::memory_order_release);
  own().generation.store(generation + 1, std::memory_order_release);
}

// The counters of ranks that did not exist are left alone: memory that is never touched takes no room.
void Counters::clear() {
  CounterPage& all = own();
  const std::size_t n_ranks = std::min<std::size_t>(load(all.size), kPageRanks);
  for (CounterWord* word : {&all.steps, &all.last_step_ns, &all.n_waiting, &all.waiting_ns, &all.waited_ns, &all.stalls,
                            &all.slot_bytes, &all.kept_bytes, &all.empty_bytes})
    store(*word, 0);
  for (CounterWord& word : all.paths) store(word, 0);
  for (auto& of_collective : all.calls) {
    for (CallCounters& each : of_collective) {
      for (CounterWord* word : {&each.direct, &each.others, &each.failed, &each.n_bytes, &each.agree_ns, &each.move_ns})
        store(*word, 0);
    }
  }
  for (AlgorithmCounters& each : all.algorithms) {
    for (CounterWord* word : {&each.n_calls, &each.n_bytes, &each.move_ns}) store(*word, 0);
  }
  for (SetCounters& each : all.sets) {
    for (CounterWord* word : {&each.id, &each.n_calls, &each.n_bytes, &each.agree_ns, &each.move_ns}) store(*word, 0);
  }
  for (std::size_t rank = 0; rank < n_ranks; ++rank) {
    store(all.own_waits_ns[rank], 0);
    store(all.held_up_ns[rank], 0);
    note_link(static_cast<int>(rank), {});
  }
}

SetCounters* Counters::of_set(std::uint32_t id) {
  const auto index_of = [&](const auto& is_it) {
    std::size_t index = 0;
    while (index < kPageSets && !is_it(index)) ++index;
    return index;
  };
  std::size_t index = index_of([&](std::size_t i) { return load(own().sets[i].id) == id; });
  if (index == kPageSets) index = index_of([&](std::size_t i) { return load(own().sets[i].id) == 0; });
  if (index == kPageSets) index = index_of([&](std::size_t i) { return n_lanes_[i] == 0; });
  if (index == kPageSets) return nullptr;
  ++n_lanes_[index];
  SetCounters& found = own().sets[index];
  if (load(found.id) == id) return &found;
  for (CounterWord* word : {&found.id, &found.n_calls, &found.n_bytes, &found.agree_ns, &found.move_ns})
    store(*word, 0);
  store(found.id, id);
  return &found;
}

void Counters::leave_set(SetCounters* set) {
  if (set != nullptr) --n_lanes_[static_cast<std::size_t>(set - own().sets)];
}

std::uint16_t Counters::begin_wait(const ShownCalls::Call& call, const Stages& stages) {
  const std::uint64_t since = time_of(stages[Stage::kSubmitted]);
  const std::uint64_t n_waiting = load(own().n_waiting);
  store(own().n_waiting, n_waiting + 1);
  if (n_waiting == 0) {
    wait_began_ = stages[Stage::kSubmitted];
    store(own().waiting_ns, since);
  }
  return shown_.add(call, since);
}

// Reads both clocks again now and then: an error of the measured rate would otherwise add up.
std::uint64_t Counters::time_of(std::uint64_t when) {
  constexpr std::uint64_t kLookAgain = 1ULL << 34U;  // ticks; some seconds
  if (when - clocks_.ticks > kLookAgain) clocks_ = both_clocks();
  return static_cast<std::uint64_t>(clocks_.nanoseconds + in_nanoseconds(when - clocks_.ticks));
}

void Counters::end_wait(std::uint16_t entry, std::uint64_t when) {
  shown_.agree(entry);
  const std::uint64_t n_waiting = load(own().n_waiting) - 1;
  store(own().n_waiting, n_waiting);
  if (n_waiting > 0) return;
  store(own().waiting_ns, 0);
  add(own().waited_ns, nanoseconds(wait_began_, when));
}

void Counters::time_direct(const ShownCalls::Call& call, const Stages& stages, SetCounters* set) {
  const Times times = times_of(stages);
  add_times(of(call.collective, call.n_bytes), set, {kDirectPerTimed * times.agree, kDirectPerTimed * times.move});
  end(shown_.add(call, time_of(stages[Stage::kSubmitted])), stages, ErrorKind::kOk);
}

void Counters::count(Collective collective, std::size_t n_bytes, const Stages& stages, ErrorKind outcome,
                     SetCounters* set) {
  CallCounters& counters = of(collective, n_bytes);
  add(counters.others, 1);
  add(own().paths[static_cast<std::size_t>(stages.path)], 1);
  if (set != nullptr) add(set->n_calls, 1);
  if (outcome != ErrorKind::kOk) return add(counters.failed, 1);
  add(counters.n_bytes, n_bytes);
  if (set != nullptr) add(set->n_bytes, n_bytes);
  const Times times = times_of(stages);
  add_times(counters, set, times);
  AlgorithmCounters* const by = stages.algorithm.empty() ? nullptr : of(stages.algorithm);
  if (by == nullptr) return;
  add(by->n_calls, 1);
  add(by->n_bytes, n_bytes);
  add(by->move_ns, times.move);
}

// Null if there is no room for another. A name is on the page before it has calls. It is a constant, so that it can be
// recognized by its place.
AlgorithmCounters* Counters::of(std::string_view algorithm) {
  const auto known = std::ranges::find(algorithms_, algorithm.data(), &std::string_view::data);
  const auto index = static_cast<std::size_t>(known - algorithms_.begin());
  if (index == kPageAlgorithms) return nullptr;
  AlgorithmCounters& counters = own().algorithms[index];
  if (known != algorithms_.end()) return &counters;
  std::array<std::uint64_t, sizeof(AlgorithmCounters::name) / sizeof(CounterWord)> name{};
  std::memcpy(name.data(), algorithm.data(), std::min(algorithm.size(), sizeof(name)));
  for (std::size_t i = 0; i < name.size(); ++i) store(counters.name[i], name[i]);
  algorithms_.push_back(algorithm);
  return &counters;
}

void Counters::note_link(int rank, const Link& link) {
  if (static_cast<std::size_t>(rank) >= kPageRanks) return;
  LinkCounters& counters = own().links[rank];
  store(counters.n_sent, link.n_sent);
  store(counters.n_received, link.n_received);
  store(counters.n_retries, link.n_retries);
  store(counters.n_queued, link.n_queued);
}

void Counters::waited_for(int rank, std::uint64_t from, std::uint64_t until) {
  const std::uint64_t begin = std::max(from, waited_until_);
  if (begin >= until || static_cast<std::size_t>(rank) >= kPageRanks) return;
  waited_until_ = until;
  add(own().own_waits_ns[rank], nanoseconds(begin, until));
}

void Counters::held_up_by(int rank, TimePoint from, TimePoint until) {
  const TimePoint begin = std::max(from, held_up_until_);
  if (begin >= until || static_cast<std::size_t>(rank) >= kPageRanks) return;
  held_up_until_ = until;
  add(own().held_up_ns[rank], since_epoch(until) - since_epoch(begin));
}

void Counters::count_step() {
  own().steps.fetch_add(1, std::memory_order_relaxed);
  store(own().last_step_ns, static_cast<std::uint64_t>(monotonic_ns()));
}

// Processors convert signed numbers to floating point, and back, in one instruction each.
std::int64_t Counters::in_nanoseconds(std::uint64_t ticks) const {
  return static_cast<std::int64_t>(static_cast<double>(static_cast<std::int64_t>(ticks)) * ns_per_tick_);
}

// The counters of two cores may differ by some ticks, so a stage may seem to end before it began.
std::uint64_t Counters::nanoseconds(std::uint64_t from, std::uint64_t until) const {
  return from < until ? static_cast<std::uint64_t>(in_nanoseconds(until - from)) : 0;
}

Counters::Times Counters::times_of(const Stages& stages) const {
  const std::uint64_t agreed = stages[stages[Stage::kAgreed] != 0 ? Stage::kAgreed : Stage::kDone];
  return {nanoseconds(stages[Stage::kSubmitted], agreed), nanoseconds(agreed, stages[Stage::kDone])};
}

void Counters::add_times(CallCounters& counters, SetCounters* set, const Times& times) {
  add(counters.agree_ns, times.agree);
  add(counters.move_ns, times.move);
  if (set == nullptr) return;
  add(set->agree_ns, times.agree);
  add(set->move_ns, times.move);
}

}  // namespace ciranda
