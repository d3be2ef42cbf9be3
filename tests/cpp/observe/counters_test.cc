// The page of counters: what it counts, whose file it takes, and that readers in other threads see whole words.
#include "observe/counters.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"

namespace ciranda {
namespace {

using std::chrono::milliseconds;

std::uint64_t value(const CounterWord& word) { return word.load(std::memory_order_relaxed); }
const CallCounters& of(const Counters& counters, Collective collective, std::size_t n_bytes) {
  return counters.page().calls[static_cast<std::size_t>(collective)][size_class(n_bytes)];
}

Stages at(std::uint64_t submitted, std::uint64_t agreed, std::uint64_t done, Path path = Path::kPlan) {
  Stages stages;
  stages.note(Stage::kSubmitted, submitted);
  stages.note(Stage::kAgreed, agreed);
  stages.note(Stage::kDone, done);
  stages.path = path;
  return stages;
}

ShownCalls::Call call(std::string_view name) { return {name, Collective::kAllreduce, 3, 1, 40}; }

// As an agent makes it.
class PageFile {
 public:
  explicit PageFile(std::size_t n_bytes = sizeof(CounterPage)) : fd_(::memfd_create("page", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(fd_.get(), static_cast<off_t>(n_bytes)), 0);
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }
  std::uint64_t word(std::size_t n) const {
    std::uint64_t found = 0;
    EXPECT_EQ(::pread(fd_.get(), &found, sizeof found, static_cast<off_t>(n * sizeof found)),
              static_cast<ssize_t>(sizeof found));
    return found;
  }
  void write(std::uint64_t first) const { EXPECT_EQ(::pwrite(fd_.get(), &first, sizeof first, 0), 8); }

 private:
  UniqueFd fd_;
};

TEST(Counters, CountACallByItsCollectiveAndItsPath) {
  Counters counters("", 1, 4);
  const double tick = ns_per_tick();
  counters.count(Collective::kAllgather, 100, at(1'000'000, 3'000'000, 4'000'000), ErrorKind::kOk, nullptr);
  counters.count(Collective::kAllgather, 100, at(1'000'000, 3'000'000, 4'000'000), ErrorKind::kTimeout, nullptr);
  const CallCounters& of_it = of(counters, Collective::kAllgather, 100);
  EXPECT_EQ(value(of_it.others), 2U);
  EXPECT_EQ(value(of_it.failed), 1U);
  EXPECT_EQ(value(of_it.n_bytes), 100U) << "a call that failed has moved nothing";
  EXPECT_NEAR(static_cast<double>(value(of_it.agree_ns)), 2e6 * tick, 2e3 * tick);
  EXPECT_NEAR(static_cast<double>(value(of_it.move_ns)), 1e6 * tick, 1e3 * tick);
  EXPECT_EQ(value(counters.page().paths[static_cast<std::size_t>(Path::kPlan)]), 2U);
  EXPECT_EQ(value(of(counters, Collective::kAllreduce, 100).others), 0U);
  EXPECT_EQ(value(counters.page().rank), 1U);
  EXPECT_EQ(value(counters.page().size), 4U);
}

// Those of a program that makes two calls of different sizes in turn, too.
TEST(Counters, TimeEvery61stDirectRound) {
  Counters counters("", 0, 2);
  int n_due = 0;
  for (std::size_t i = 0; i < 244; ++i) {
    const bool is_due = counters.is_due(Collective::kAllreduce);
    n_due += is_due ? 1 : 0;
    const std::size_t n_bytes = i % 2 == 0 ? 4 : 1024;
    const ShownCalls::Call call{"x", Collective::kAllreduce, 0, 0, n_bytes};
    if (is_due) counters.time_direct(call, at(1000, 1'001'000, 1'001'000), nullptr);
    counters.count_direct(Collective::kAllreduce, n_bytes, nullptr);
  }
  EXPECT_EQ(n_due, 4);
  for (const std::size_t n_bytes : {std::size_t{4}, std::size_t{1024}}) {
    const CallCounters& of_it = of(counters, Collective::kAllreduce, n_bytes);
    EXPECT_EQ(value(of_it.direct), 122U);
    EXPECT_EQ(value(of_it.n_bytes), n_bytes * 122);
    EXPECT_NEAR(static_cast<double>(value(of_it.agree_ns)), 122e6 * ns_per_tick(), 122e3 * ns_per_tick());
  }
}

TEST(Counters, ClassesOfSizesArePowersOfFour) {
  EXPECT_EQ(size_class(0), 0U);
  EXPECT_EQ(size_class(3), 0U);
  for (std::size_t number = 1; number + 1 < kPageSizes; ++number) {
    EXPECT_EQ(size_class(std::size_t{1} << 2 * number), number);
    EXPECT_EQ(size_class((std::size_t{1} << 2 * (number + 1)) - 1), number);
  }
  EXPECT_EQ(size_class(std::size_t{1} << 30U), 15U);
  EXPECT_EQ(size_class(std::size_t{1} << 40U), 15U);
}

TEST(Counters, CountACallByItsAlgorithm) {
  Counters counters("", 0, 2);
  const auto name_of = [&](std::size_t index) {
    std::array<char, sizeof(AlgorithmCounters::name)> name{};
    std::memcpy(name.data(), counters.page().algorithms[index].name, sizeof(name));
    return std::string(name.data());
  };
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kPageAlgorithms + 2; ++i) names.push_back("algorithm " + std::to_string(i));
  for (int times = 0; times < 2; ++times) {
    for (const std::string& name : names) {
      Stages stages = at(1'000'000, 3'000'000, 4'000'000);
      stages.algorithm = name;
      counters.count(Collective::kAllreduce, 8, stages, ErrorKind::kOk, nullptr);
      counters.count(Collective::kAllreduce, 8, stages, ErrorKind::kTimeout, nullptr);
    }
  }
  counters.count(Collective::kAllreduce, 8, at(1, 2, 3), ErrorKind::kOk, nullptr);
  for (std::size_t i = 0; i < kPageAlgorithms; ++i) {
    const AlgorithmCounters& by = counters.page().algorithms[i];
    EXPECT_EQ(name_of(i), names[i]);
    EXPECT_EQ(value(by.n_calls), 2U) << "of those that succeeded";
    EXPECT_EQ(value(by.n_bytes), 16U);
    EXPECT_NEAR(static_cast<double>(value(by.move_ns)), 2e6 * ns_per_tick(), 2e3 * ns_per_tick());
  }
}

TEST(Counters, HaveWhatIsSoNow) {
  const PageFile file;
  {
    Counters counters(file.path(), 0, 3);
    counters.note_link(2, {10, 20, 3, 4});
    counters.note_link(2, {30, 20, 3, 0});
    counters.note_link(1 << 20, {1, 1, 1, 1});
    counters.note_slots(7);
    counters.note_memory(8, 9);
    const LinkCounters& link = counters.page().links[2];
    EXPECT_EQ(value(link.n_sent), 30U);
    EXPECT_EQ(value(link.n_received), 20U);
    EXPECT_EQ(value(link.n_retries), 3U);
    EXPECT_EQ(value(link.n_queued), 0U);
    EXPECT_EQ(value(counters.page().slot_bytes), 7U);
    EXPECT_EQ(value(counters.page().kept_bytes), 8U);
    EXPECT_EQ(value(counters.page().empty_bytes), 9U);
  }
  const Counters again(file.path(), 0, 3);
  EXPECT_EQ(value(again.page().links[2].n_sent), 0U);
  EXPECT_EQ(value(again.page().kept_bytes), 0U);
}

TEST(Counters, WaitsOfCallsThatOverlapCountOnce) {
  Counters counters("", 0, 2);
  const auto first = counters.begin_wait(call("a"), at(1'000'000, 0, 0));
  EXPECT_EQ(value(counters.page().n_waiting), 1U);
  const auto second = counters.begin_wait(call("b"), at(1'500'000, 0, 0));
  counters.end_wait(first, 3'000'000);
  EXPECT_EQ(value(counters.page().waited_ns), 0U) << "one of them still waits";
  counters.end_wait(second, 4'000'000);
  EXPECT_EQ(value(counters.page().n_waiting), 0U);
  EXPECT_EQ(value(counters.page().waiting_ns), 0U);
  EXPECT_NEAR(static_cast<double>(value(counters.page().waited_ns)), 3e6 * ns_per_tick(), 3e3 * ns_per_tick());
}

TEST(Counters, SaySinceWhenACallWaits) {
  Counters counters("", 0, 2);
  const std::int64_t before = monotonic_ns();
  const std::uint64_t submitted = ticks();
  const std::int64_t after = monotonic_ns();
  counters.begin_wait(call("a"), at(submitted, 0, 0));
  const auto since = static_cast<std::int64_t>(value(counters.page().waiting_ns));
  constexpr std::int64_t kPrecision = 100'000;
  EXPECT_GE(since, before - kPrecision);
  EXPECT_LE(since, after + kPrecision);
}

std::string name_of(const ShownCall& call) {
  std::array<char, sizeof(ShownCall::name)> text{};
  std::memcpy(text.data(), call.name, sizeof(ShownCall::name));
  return std::string(text.data(), std::min<std::size_t>(value(call.kind) >> 32U, text.size()));
}

TEST(Counters, ShowACallFromItsSubmissionToItsEnd) {
  Counters counters("", 0, 2);
  const std::string longest(100, 'x');
  ASSERT_EQ(counters.begin_wait(call(longest), at(ticks(), 0, 0)), 0);
  EXPECT_EQ(name_of(counters.page().shown[0]), longest.substr(0, 80));
  EXPECT_EQ(value(counters.page().shown[0].kind) >> 32U, 100U) << "who reads it knows that its end is missing";
  const auto entry = counters.begin_wait(call("grad"), at(ticks(), 0, 0));
  ASSERT_EQ(entry, 1);
  const ShownCall& shown = counters.page().shown[1];
  EXPECT_EQ(name_of(shown), "grad");
  EXPECT_EQ(value(shown.kind) & 0xffffffffU, static_cast<std::uint64_t>(Collective::kAllreduce));
  EXPECT_EQ(value(shown.place), 3U | 1ULL << 32U);
  EXPECT_EQ(value(shown.n_bytes), 40U);
  EXPECT_EQ(value(shown.sequence) % 2, 0U);
  counters.end_wait(entry, ticks());
  EXPECT_EQ(value(shown.kind) & 0xffffffffU, static_cast<std::uint64_t>(Collective::kAllreduce) | kShownAgreed);
  EXPECT_EQ(value(shown.ended_ns), 0U);
  EXPECT_EQ(value(counters.page().n_in_flight), 2U);
  counters.end(entry, at(1, 2, ticks(), Path::kByMessages), ErrorKind::kTimeout);
  EXPECT_EQ(value(counters.page().n_in_flight), 1U);
  EXPECT_GE(value(shown.ended_ns), value(shown.since_ns));
  EXPECT_EQ(value(shown.kind) >> 8U & 0xffU, static_cast<std::uint64_t>(ErrorKind::kTimeout));
  EXPECT_EQ(value(shown.kind) >> 16U & 0xffU, static_cast<std::uint64_t>(Path::kByMessages));
  EXPECT_EQ(name_of(shown), "grad") << "who reads it sees what the rank did last";
}

TEST(Counters, KeepTheLastCallsAndUseFewEntries) {
  Counters counters("", 0, 2);
  const auto waiting = counters.begin_wait(call("waits"), at(ticks(), 0, 0));
  for (std::size_t i = 0; i < 3 * kPageEnded + 1; ++i) {
    counters.end(counters.begin_wait(call(std::to_string(i)), at(ticks(), 0, 0)), at(1, 2, ticks()), ErrorKind::kOk);
  }
  ASSERT_EQ(value(counters.page().shown_used), 1 + kPageEnded);
  EXPECT_EQ(name_of(counters.page().shown[waiting]), "waits");
  std::set<std::string> names;
  for (std::size_t i = 1; i <= kPageEnded; ++i) names.insert(name_of(counters.page().shown[i]));
  std::set<std::string> last;
  for (std::size_t i = 2 * kPageEnded + 1; i < 3 * kPageEnded + 1; ++i) last.insert(std::to_string(i));
  EXPECT_EQ(names, last);
}

TEST(Counters, ShowADirectRoundThatWasTimed) {
  Counters counters("", 0, 2);
  counters.time_direct(call("x"), at(1'000'000, 3'000'000, 4'000'000, Path::kDirect), nullptr);
  EXPECT_EQ(name_of(counters.page().shown[0]), "x");
  EXPECT_GT(value(counters.page().shown[0].ended_ns), value(counters.page().shown[0].since_ns));
  EXPECT_EQ(value(counters.page().n_in_flight), 0U);
}

TEST(Counters, CountCallsThatTheyHaveNoRoomToShow) {
  Counters counters("", 0, 2);
  std::vector<std::uint16_t> entries;
  for (std::size_t i = 0; i < kPageShown + 2; ++i) entries.push_back(counters.begin_wait(call("a"), at(ticks(), 0, 0)));
  EXPECT_EQ(value(counters.page().n_in_flight), kPageShown + 2);
  EXPECT_EQ(entries.back(), ShownCalls::kNoEntry);
  for (const std::uint16_t entry : entries) counters.end(entry, at(1, 2, 3), ErrorKind::kOk);
  EXPECT_EQ(value(counters.page().n_in_flight), 0U);
  EXPECT_NE(counters.begin_wait(call("a"), at(ticks(), 0, 0)), ShownCalls::kNoEntry);
}

// The process may have been killed while it wrote an entry.
TEST(Counters, ShowNoCallOfAnEarlierWorld) {
  const PageFile file;
  {
    Counters counters(file.path(), 0, 2);
    const auto& torn = counters.page().shown[1].sequence;
    counters.begin_wait(call("a"), at(ticks(), 0, 0));
    counters.begin_wait(call("b"), at(ticks(), 0, 0));
    const_cast<CounterWord&>(torn).store(value(torn) + 1);
  }
  Counters again(file.path(), 0, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(value(again.page().shown[i].since_ns), 0U);
    EXPECT_EQ(value(again.page().shown[i].sequence) % 2, 0U);
  }
  EXPECT_EQ(value(again.page().n_in_flight), 0U);
}

// A reader that finds the same even number before and after has read what was written at one time.
TEST(Counters, ShowCallsToReadersThatTakeNoLock) {
  Counters counters("", 0, 2);
  constexpr std::size_t kMostNames = 26;
  std::array<std::string, kMostNames> names;
  for (std::size_t n = 0; n < kMostNames; ++n) names[n] = std::string(80, static_cast<char>('a' + n));
  std::atomic<bool> is_done{false};
  std::uint64_t n_ended = 0;
  std::thread reader([&] {
    const auto at = [](const CounterWord& word) { return word.load(std::memory_order_acquire); };
    for (std::size_t i = 0; !is_done || n_ended == 0; i = (i + 1) % kPageEnded) {
      const ShownCall& shown = counters.page().shown[i];
      const std::uint64_t before = at(shown.sequence);
      const std::uint64_t ended = at(shown.ended_ns);
      const std::uint64_t n_bytes = at(shown.n_bytes);
      const std::uint64_t kind = at(shown.kind);
      std::array<std::uint64_t, 10> words{};
      for (std::size_t word = words.size(); word-- > 0;) words[word] = at(shown.name[word]);
      if (before % 2 != 0 || before == 0 || at(shown.sequence) != before) continue;
      ASSERT_EQ(std::memcmp(words.data(), names[n_bytes].data(), sizeof words), 0) << "bytes and name are of one call";
      if (ended == 0) continue;
      ASSERT_EQ(kind >> 16U & 0xffU, static_cast<std::uint64_t>(Path::kPlan)) << "it is written before the end";
      ++n_ended;
    }
  });
  // Long enough for the writer to be preempted within an entry.
  const auto until = std::chrono::steady_clock::now() + milliseconds(200);
  while (std::chrono::steady_clock::now() < until) {
    for (std::size_t i = 0; i < kMostNames; ++i) {
      const auto entry = counters.begin_wait({names[i], Collective::kBarrier, 0, 0, i}, at(1, 0, 0));
      counters.end(entry, at(1, 2, 3), ErrorKind::kOk);
    }
  }
  is_done = true;
  reader.join();
  EXPECT_GT(n_ended, 0U);
}

TEST(Counters, CountTheCallsOfProcessSets) {
  Counters counters("", 0, 4);
  SetCounters* const of_set = counters.of_set(7);
  ASSERT_NE(of_set, nullptr);
  EXPECT_EQ(counters.of_set(7), of_set);
  EXPECT_NE(counters.of_set(8), of_set);
  const Stages stages = at(1'000'000, 3'000'000, 4'000'000);
  counters.count(Collective::kAllgather, 100, stages, ErrorKind::kOk, of_set);
  counters.count(Collective::kAllgather, 100, stages, ErrorKind::kTimeout, of_set);
  counters.count_direct(Collective::kAllreduce, 4, of_set);
  EXPECT_EQ(value(of_set->id), 7U);
  EXPECT_EQ(value(of_set->n_calls), 3U);
  EXPECT_EQ(value(of_set->n_bytes), 104U);
  EXPECT_NEAR(static_cast<double>(value(of_set->agree_ns)), 2e6 * ns_per_tick(), 2e3 * ns_per_tick());
  for (std::uint32_t id = 9; id < 9 + kPageSets - 2; ++id) EXPECT_NE(counters.of_set(id), nullptr);
  EXPECT_EQ(counters.of_set(100), nullptr) << "there is no room for more";
  counters.leave_set(of_set);
  EXPECT_EQ(counters.of_set(100), nullptr) << "it has another lane";
  counters.leave_set(of_set);
  EXPECT_EQ(value(of_set->n_calls), 3U);
  EXPECT_EQ(counters.of_set(100), of_set);
  EXPECT_EQ(value(of_set->n_calls), 0U);
  counters.leave_set(nullptr);
}

TEST(Counters, AWaitIsBookedOnTheLastRankAndOnce) {
  Counters counters("", 0, 3);
  counters.waited_for(2, 1'000'000, 2'000'000);
  counters.waited_for(1, 1'500'000, 3'000'000);
  EXPECT_NEAR(static_cast<double>(value(counters.page().own_waits_ns[2])), 1e6 * ns_per_tick(), 1e3 * ns_per_tick());
  EXPECT_NEAR(static_cast<double>(value(counters.page().own_waits_ns[1])), 1e6 * ns_per_tick(), 1e3 * ns_per_tick());
  const Counters::TimePoint begin = std::chrono::steady_clock::now();
  counters.held_up_by(1, begin, begin + milliseconds(30));
  counters.held_up_by(1, begin, begin + milliseconds(40));
  counters.held_up_by(1 << 20, begin, begin + milliseconds(90));
  EXPECT_EQ(value(counters.page().held_up_ns[1]), 40'000'000U);
}

TEST(Counters, AreInTheFileOfTheAgent) {
  const PageFile file;
  {
    Counters counters(file.path(), 3, 8);
    EXPECT_TRUE(counters.is_shared());
    counters.count_step();
    EXPECT_EQ(file.word(0), kPageMagic);
    EXPECT_EQ(file.word(4), 3U);
    EXPECT_EQ(file.word(7), 1U);
  }
  EXPECT_EQ(file.word(7), 1U) << "what a rank that has ended has counted stays";
  const std::uint64_t generation = file.word(2);
  const Counters again(file.path(), 3, 8);
  EXPECT_TRUE(again.is_shared());
  EXPECT_EQ(file.word(7), 0U);
  EXPECT_EQ(file.word(2), generation + 2);
}

TEST(Counters, LeaveAFileThatIsNoPageOrHasAnotherWriter) {
  const PageFile short_one(4096);
  EXPECT_FALSE(Counters(short_one.path(), 0, 1).is_shared());
  const PageFile foreign;
  foreign.write(0x1234);
  EXPECT_FALSE(Counters(foreign.path(), 0, 1).is_shared());
  EXPECT_EQ(foreign.word(0), 0x1234U);
  EXPECT_FALSE(Counters("/nowhere", 0, 1).is_shared());
  const PageFile file;
  const Counters first(file.path(), 0, 2);
  EXPECT_FALSE(Counters(file.path(), 1, 2).is_shared());
  EXPECT_EQ(file.word(4), 0U);
}

TEST(Counters, AreReadWhileTheyAreWritten) {
  Counters counters("", 0, 2);
  std::atomic<bool> is_done{false};
  std::thread reader([&] {
    std::uint64_t last = 0;
    while (!is_done) {
      const std::uint64_t now = value(of(counters, Collective::kBarrier, 0).others);
      EXPECT_GE(now, last);
      last = now;
    }
  });
  for (int i = 0; i < 100'000; ++i) counters.count(Collective::kBarrier, 0, at(1, 2, 3), ErrorKind::kOk, nullptr);
  is_done = true;
  reader.join();
  EXPECT_EQ(value(of(counters, Collective::kBarrier, 0).others), 100'000U);
}

}  // namespace
}  // namespace ciranda
