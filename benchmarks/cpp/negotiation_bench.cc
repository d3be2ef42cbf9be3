// Measures the negotiation of a training step, by the number of ranks: messages, bytes, and the time of the network and
// of the coordinator. The coordinator, the relays and the participants are those of the engine; crowd.hpp describes the
// simulated parts.
//
//   negotiation_bench [--ranks 64,256,1024,4096] [--tensors 100] [--turns 10] [--step-mib 0] [--fan-out 0]
//                     [--ranks-per-host 8] [--repeats 3] [--paths first,cached,groups,relays]
//
// Prints a line of JSON for each number of ranks and tensors, and each path: in "first" ranks send signatures; in
// "cached" they send cache ids; in "groups" they report learned groups by number; in "relays" relays forward these as
// well. Every rank reports a step's tensors in --turns turns. The tensors have --step-mib MiB in total (0: 64 KiB
// each). Measured times are the least of --repeats crowds. With groups, "alone_us" is the coordinator's time if it
// receives the same messages once more, without other work in between.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "agree/crowd.hpp"

namespace {

using ciranda::testing::Crowd;
using ciranda::testing::CrowdOptions;
using ciranda::testing::Nanoseconds;
using ciranda::testing::StepCost;

struct Path {
  const char* name;
  int step;  // the step of a crowd that is measured, from 0
  bool reports_groups;
  bool has_relays;
};
// The second and the third step use cache ids. As they have the same tensors, groups are planned in the fourth step,
// used from the fifth, and gathered by relays from the sixth.
constexpr std::array kPaths{Path{"first", 0, false, false}, Path{"cached", 1, false, false},
                            Path{"groups", 6, true, false}, Path{"relays", 6, true, true}};

constexpr int kTimesAlone = 50;

std::vector<int> numbers(const std::string& list) {
  std::vector<int> numbers;
  std::istringstream in(list);
  for (std::string number; std::getline(in, number, ',');) numbers.push_back(std::stoi(number));
  return numbers;
}

double us(Nanoseconds duration) { return static_cast<double>(duration.count()) / 1e3; }

void keep_least(StepCost& least, const StepCost& cost) {
  least.reading = std::min(least.reading, cost.reading);
  least.writing = std::min(least.writing, cost.writing);
  least.sending = std::min(least.sending, cost.sending);
  least.tail = std::min(least.tail, cost.tail);
  least.relaying = std::min(least.relaying, cost.relaying);
}

struct Cost {
  StepCost step;
  Nanoseconds alone;
};

// Returns nullopt if ranks disagree, which would be a bug.
std::optional<Cost> measure(CrowdOptions options, const Path& path, int n_repeats) {
  options.reports_groups = path.reports_groups;
  options.has_relays = path.has_relays;
  std::optional<StepCost> least;
  Nanoseconds alone{0};
  for (int repeat = 0; repeat < n_repeats; ++repeat) {
    Crowd crowd(options);
    StepCost cost;
    for (int step = 0; step <= path.step; ++step) cost = crowd.step();
    for (int again = 0; again < kTimesAlone && path.reports_groups; ++again) {
      const Nanoseconds spent = crowd.coordinate_again();
      alone = again == 0 && repeat == 0 ? spent : std::min(alone, spent);
    }
    if (!crowd.broken().empty()) {
      std::fprintf(stderr, "%d ranks: %s\n", options.n_ranks, crowd.broken().c_str());
      return std::nullopt;
    }
    if (!least) least = cost;
    keep_least(*least, cost);
  }
  return Cost{*least, alone};
}

void print(const CrowdOptions& options, const Path& path, const Cost& measured) {
  const StepCost& cost = measured.step;
  std::printf(
      "{\"ranks\": %d, \"tensors\": %d, \"step_mib\": %zu, \"path\": \"%s\", \"messages_in\": %zu, \"bytes_in\": %zu, "
      "\"messages_out\": "
      "%zu, \"bytes_out\": %zu, \"entries\": %zu, \"most_from_a_host\": %zu, \"wait_us\": %.1f, \"reading_us\": %.1f, "
      "\"writing_us\": %.1f, \"sending_us\": %.1f, \"tail_us\": %.1f, \"relaying_us\": %.1f, \"alone_us\": "
      "%.1f}\n",
      options.n_ranks, options.n_tensors, options.step_bytes >> 20, path.name, cost.n_messages_in, cost.n_bytes_in,
      cost.n_messages_out, cost.n_bytes_out, cost.n_entries, cost.most_from_a_host, us(cost.wait), us(cost.reading),
      us(cost.writing), us(cost.sending), us(cost.tail), us(cost.relaying), us(measured.alone));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given{{"--ranks", "64,128,256,512,1024,2048,4096"},
                                           {"--tensors", "100"},
                                           {"--turns", "10"},
                                           {"--step-mib", "0"},
                                           {"--fan-out", "0"},
                                           {"--ranks-per-host", "8"},
                                           {"--repeats", "3"},
                                           {"--paths", "first,cached,groups,relays"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!given.contains(argv[i])) {
      std::fprintf(stderr, "there is no %s\n", argv[i]);
      return 2;
    }
    given[argv[i]] = argv[i + 1];
  }
  for (const int n_tensors : numbers(given["--tensors"])) {
    for (const int n_ranks : numbers(given["--ranks"])) {
      CrowdOptions options;
      options.n_ranks = n_ranks;
      options.n_tensors = n_tensors;
      options.tensors_per_turn = std::max(1, n_tensors / numbers(given["--turns"]).front());
      options.step_bytes = static_cast<std::size_t>(numbers(given["--step-mib"]).front()) << 20;
      options.fan_out = numbers(given["--fan-out"]).front();
      options.ranks_per_host = numbers(given["--ranks-per-host"]).front();
      for (const Path& path : kPaths) {
        if (given["--paths"].find(path.name) == std::string::npos) continue;
        const std::optional<Cost> cost = measure(options, path, numbers(given["--repeats"]).front());
        if (!cost) return 1;
        print(options, path, *cost);
      }
    }
  }
  return 0;
}
