// Measures the cost of a recording: blocking allreduces of 4 bytes through the C interface, with and without a
// recording. The two take turns, which are so short that nothing else disturbs most of them.
//
//   ciranda run -np 2 recording [--turns 4000] [--calls 400]
//
// Prints a line of JSON: the nanoseconds of a call without and with a recording, and their ratio. Each time is that of
// the turn at the first decile.
#include <ciranda/ciranda.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void stay_on_core(int number) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(number) % std::thread::hardware_concurrency(), &set);
  sched_setaffinity(0, sizeof set, &set);
}

double undisturbed(std::vector<double> values) {
  const auto tenth = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 10);
  std::nth_element(values.begin(), tenth, values.end());
  return *tenth;
}

class Calls {
 public:
  explicit Calls(ciranda_context* world) : world_(world) {
    tensor_ = {&value_, &value_, &shape_, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
    request_.name = "x";
    request_.tensors = &tensor_;
    request_.tensors_count = 1;
  }

  void make(int n_calls) {
    for (int i = 0; i < n_calls; ++i) {
      if (ciranda_run(world_, &request_, nullptr) != CIRANDA_OK) std::abort();
    }
  }

  // Returns the nanoseconds of one call.
  double time(int n_calls) {
    make(20);
    const auto begin = Clock::now();
    make(n_calls);
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / n_calls;
  }

  double time_recorded(int n_calls) {
    ciranda_recording* recording = nullptr;
    if (ciranda_record_start(world_, &recording) != CIRANDA_OK) std::abort();
    const double took = time(n_calls);
    ciranda_record_stop(recording);
    return took;
  }

 private:
  ciranda_context* world_;
  float value_ = 0;
  std::int64_t shape_ = 1;
  ciranda_tensor tensor_{};
  ciranda_request request_ = CIRANDA_REQUEST_INIT;
};

int number_after(const std::string& flag, int argc, char** argv, int otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == flag) return std::atoi(argv[i + 1]);
  }
  return otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  ciranda_context* world = nullptr;
  std::array<char, 512> message{};
  if (ciranda_init(nullptr, &world, message.data(), message.size()) != CIRANDA_OK) {
    std::fprintf(stderr, "%s\n", message.data());
    return 1;
  }
  stay_on_core(ciranda_local_rank(world));
  const int n_turns = number_after("--turns", argc, argv, 4000);
  const int n_calls = number_after("--calls", argc, argv, 400);
  Calls calls(world);
  calls.make(1000);
  std::vector<double> without;
  std::vector<double> with;
  for (int turn = 0; turn < n_turns; ++turn) {
    without.push_back(calls.time(n_calls));
    with.push_back(calls.time_recorded(n_calls));
  }
  if (ciranda_rank(world) == 0) {
    const double off = undisturbed(without);
    const double on = undisturbed(with);
    std::printf(R"({"ranks": %d, "without_ns": %.0f, "with_ns": %.0f, "ratio": %.3f})"
                "\n",
                ciranda_size(world), off, on, on / off);
  }
  ciranda_shutdown(world);
  return 0;
}
