// What agreeing on a training step costs, by the number of ranks: messages, bytes, the network's time and the
// coordinator's. The coordinator and the participants are the engine's; see crowd.hpp for what is simulated.
//
//   negotiation_bench [--ranks 64,256,1024,4096] [--tensors 100] [--tensors-per-turn 10]
//
// A line of JSON for each number of ranks and each path: "first", in which all signatures travel; "cached", in which
// slots do; "planned", in which the groups are learned too. Measured times are the least of three crowds.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "negotiate/crowd.hpp"

namespace {

using ciranda::testing::Crowd;
using ciranda::testing::CrowdOptions;
using ciranda::testing::Nanoseconds;
using ciranda::testing::StepCost;

constexpr int kRepeats = 3;

struct Path {
  const char* name;
  int step;  // of a crowd's first steps
};
// The second step uses slots; once it has brought the same names as the first, groups are planned in the third.
constexpr std::array kPaths{Path{"first", 0}, Path{"cached", 1}, Path{"planned", 4}};

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
}

// Of each path. Empty if ranks disagree, which would be a bug.
std::vector<StepCost> measure(const CrowdOptions& options) {
  std::vector<StepCost> least;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    Crowd crowd(options);
    std::vector<StepCost> steps;
    for (int step = 0; step <= kPaths.back().step; ++step) steps.push_back(crowd.step());
    if (!crowd.broken().empty()) {
      std::fprintf(stderr, "%d ranks: %s\n", options.n_ranks, crowd.broken().c_str());
      return {};
    }
    for (std::size_t path = 0; path < kPaths.size(); ++path) {
      const StepCost& cost = steps[static_cast<std::size_t>(kPaths[path].step)];
      if (repeat == 0) least.push_back(cost);
      keep_least(least[path], cost);
    }
  }
  return least;
}

void print(const CrowdOptions& options, const Path& path, const StepCost& cost) {
  std::printf(
      "{\"ranks\": %d, \"tensors\": %d, \"path\": \"%s\", \"messages_in\": %zu, \"bytes_in\": %zu, \"messages_out\": "
      "%zu, \"bytes_out\": %zu, \"entries\": %zu, \"wait_us\": %.1f, \"reading_us\": %.1f, \"writing_us\": %.1f, "
      "\"sending_us\": %.1f, \"tail_us\": %.1f}\n",
      options.n_ranks, options.n_tensors, path.name, cost.n_messages_in, cost.n_bytes_in, cost.n_messages_out,
      cost.n_bytes_out, cost.n_entries, us(cost.wait), us(cost.reading), us(cost.writing), us(cost.sending),
      us(cost.tail));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given{
      {"--ranks", "64,128,256,512,1024,2048,4096"}, {"--tensors", "100"}, {"--tensors-per-turn", "10"}};
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
      options.tensors_per_turn = numbers(given["--tensors-per-turn"]).front();
      const std::vector<StepCost> costs = measure(options);
      if (costs.empty()) return 1;
      for (std::size_t path = 0; path < kPaths.size(); ++path) print(options, kPaths[path], costs[path]);
    }
  }
  return 0;
}
