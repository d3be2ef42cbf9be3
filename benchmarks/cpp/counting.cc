// Measures what it costs a call that it is counted and shown on the page that the rank's agent reads, which is always
// so, recorded or not: one by the log, with its wait, and a direct round without one.
//
//   counting [--turns 2000] [--calls 1000] [--in-flight 1]
//
// Prints a line of JSON: the nanoseconds of a call of each kind, in the turn at the first decile. The clock is read
// outside, as the engine has the times for other purposes. `--in-flight` calls by the log are under way at a time.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "observe/counters.hpp"

namespace ciranda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr ShownCalls::Call kCall{"layers.7.weight", Collective::kAllreduce, 0, 0, 4096};

int number_after(const std::string& flag, int argc, char** argv, int otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == flag) return std::atoi(argv[i + 1]);
  }
  return otherwise;
}

// As an agent makes it.
std::string page_file() {
  const int fd = ::memfd_create("page", MFD_CLOEXEC);
  if (::ftruncate(fd, sizeof(CounterPage)) != 0) std::abort();
  return "/proc/self/fd/" + std::to_string(fd);
}

class Calls {
 public:
  explicit Calls(std::size_t n_in_flight) : counters_(page_file(), 0, 2), entries_(n_in_flight) {
    if (!counters_.is_shared()) std::abort();
    stages_.path = Path::kPlan;
    stages_.algorithm = "two_shot";
    for (std::uint16_t& entry : entries_) entry = begin();
  }

  void by_log(int n_calls) {
    for (int i = 0; i < n_calls; ++i) {
      std::uint16_t& entry = entries_[next_];
      next_ = next_ + 1 < entries_.size() ? next_ + 1 : 0;
      counters_.end_wait(entry, ++now_);
      stages_.note(Stage::kAgreed, now_);
      stages_.note(Stage::kDone, ++now_);
      counters_.count(kCall.collective, kCall.n_bytes, stages_, ErrorKind::kOk, nullptr);
      counters_.end(entry, stages_, ErrorKind::kOk);
      entry = begin();
    }
  }

  void direct(int n_calls) {
    for (int i = 0; i < n_calls; ++i) {
      const bool is_due = counters_.is_due(Collective::kAllreduce);
      counters_.count_direct(kCall.collective, kCall.n_bytes, nullptr);
      if (is_due) counters_.time_direct(kCall, stages_, nullptr);
    }
  }

 private:
  std::uint16_t begin() {
    stages_.note(Stage::kSubmitted, ++now_);
    return counters_.begin_wait(kCall, stages_);
  }

  Counters counters_;
  Stages stages_;
  std::uint64_t now_ = ticks();
  std::vector<std::uint16_t> entries_;  // of the calls under way
  std::size_t next_ = 0;                // of them: the one that ends next
};

template <typename Turn>
double nanoseconds(const Turn& turn, int n_calls) {
  const auto begin = Clock::now();
  turn(n_calls);
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / n_calls;
}

double undisturbed(std::vector<double>& values) {
  const auto tenth = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 10);
  std::nth_element(values.begin(), tenth, values.end());
  return *tenth;
}

}  // namespace
}  // namespace ciranda

int main(int argc, char** argv) {
  using namespace ciranda;
  const int n_turns = number_after("--turns", argc, argv, 2000);
  const int n_calls = number_after("--calls", argc, argv, 1000);
  const int n_in_flight = number_after("--in-flight", argc, argv, 1);
  Calls calls(static_cast<std::size_t>(std::max(n_in_flight, 1)));
  std::vector<double> by_log;
  std::vector<double> direct;
  for (int turn = 0; turn < n_turns; ++turn) {
    by_log.push_back(nanoseconds([&](int n) { calls.by_log(n); }, n_calls));
    direct.push_back(nanoseconds([&](int n) { calls.direct(n); }, n_calls));
  }
  std::printf(R"({"by_log_ns": %.1f, "direct_ns": %.1f, "in_flight": %d})"
              "\n",
              undisturbed(by_log), undisturbed(direct), n_in_flight);
  return 0;
}
