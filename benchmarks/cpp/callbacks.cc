// Times many small allreduces with a callback for each, compared with waiting for each.
//
//   ciranda run --no-prefix -np 2 build/bench/benchmarks/cpp/callbacks [--counts 1,2,3,4,8,32,100,1000]
//                                                                      [--bytes 4096] [--rounds 200]
//
// Rank 0 prints a line of JSON for each count. Times are medians of rounds in microseconds, from the first submission
// to the end of the last operation, on the slowest rank. The three ways take turns, so that a disturbance of the
// machine affects all of them. With callbacks, the submitting thread sleeps until the last callback wakes it.
#include <ciranda/ciranda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

enum class Way : std::uint8_t { kWaited, kCalledBack, kCalledBackDirectly };
constexpr std::array kWays{Way::kWaited, Way::kCalledBack, Way::kCalledBackDirectly};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "callbacks: %s\n", what);
  std::exit(1);
}

void expect(bool is_so, const char* what) {
  if (!is_so) fail(what);
}

// The number of operations of a round that are not done.
class Pending {
 public:
  explicit Pending(int n) : n_(n) {}
  static void end_one(const ciranda_operation* operation, void* pending) {
    expect(ciranda_operation_status(operation) == CIRANDA_OK, ciranda_operation_message(operation));
    auto& n = static_cast<Pending*>(pending)->n_;
    if (n.fetch_sub(1) == 1) n.notify_one();
  }
  void wait() const {
    for (int n = n_.load(); n != 0; n = n_.load()) n_.wait(n);
  }

 private:
  std::atomic<int> n_;
};

class Bench {
 public:
  Bench(ciranda_context* world, std::size_t n_bytes) : world_(world), n_values_(n_bytes / sizeof(float)) {}

  // Returns the median time of each way.
  std::array<double, kWays.size()> measure(int n, int n_rounds) {
    make_room(n);
    const int n_warm_up = 10;
    std::array<std::vector<double>, kWays.size()> times;
    for (int i = 0; i < n_warm_up + n_rounds; ++i) {
      for (std::size_t way = 0; way < kWays.size(); ++way) {
        const double us = round(n, kWays[way]);
        if (i >= n_warm_up) times[way].push_back(us);
      }
    }
    std::array<double, kWays.size()> medians{};
    for (std::size_t way = 0; way < kWays.size(); ++way) {
      reduce(times[way].data(), CIRANDA_FLOAT64, static_cast<std::int64_t>(times[way].size()), "times");
      std::sort(times[way].begin(), times[way].end());
      medians[way] = times[way][times[way].size() / 2];
    }
    return medians;
  }

 private:
  void make_room(int n) {
    while (static_cast<int>(names_.size()) < n) names_.push_back("t" + std::to_string(names_.size()));
    values_.resize(names_.size() * n_values_, 0.0F);
  }

  void reduce(void* values, ciranda_dtype dtype, std::int64_t count, const char* name) {
    const ciranda_tensor tensor{values, values, &count, 1, dtype, nullptr, 0, 0, 0, nullptr};
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.op = CIRANDA_MAX;
    request.name = name;
    request.tensors = &tensor;
    request.tensors_count = 1;
    expect(ciranda_run(world_, &request, nullptr) == CIRANDA_OK, "an allreduce failed");
  }

  double round(int n, Way way) {
    std::int32_t nothing = 0;
    reduce(&nothing, CIRANDA_INT32, 1, "together");
    Pending pending(n);
    std::vector<ciranda_operation*> operations(static_cast<std::size_t>(n), nullptr);
    const auto begin = Clock::now();
    for (int i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      submit(at, way, pending, way == Way::kWaited ? &operations[at] : nullptr);
    }
    if (way == Way::kWaited) {
      for (ciranda_operation* operation : operations) expect(ciranda_wait(operation) == CIRANDA_OK, "a wait failed");
    } else {
      pending.wait();
    }
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    for (ciranda_operation* operation : operations) ciranda_operation_release(operation);
    return us;
  }

  void submit(std::size_t i, Way way, Pending& pending, ciranda_operation** operation) {
    const auto count = static_cast<std::int64_t>(n_values_);
    float* const values = &values_[i * n_values_];
    const ciranda_tensor tensor{values, values, &count, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.name = names_[i].c_str();
    request.tensors = &tensor;
    request.tensors_count = 1;
    if (way != Way::kWaited) {
      request.callback = &Pending::end_one;
      request.user_data = &pending;
    }
    if (way == Way::kCalledBackDirectly) request.flags = CIRANDA_REQUEST_DIRECT_CALLBACK;
    expect(ciranda_submit(world_, &request, operation) == CIRANDA_OK, "a request was refused");
  }

  ciranda_context* world_;
  std::size_t n_values_;
  std::vector<std::string> names_;
  std::vector<float> values_;
};

std::vector<int> numbers(const std::string& list) {
  std::vector<int> numbers;
  std::istringstream in(list);
  for (std::string number; std::getline(in, number, ',');) numbers.push_back(std::stoi(number));
  return numbers;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given{
      {"--counts", "1,2,3,4,8,32,100,1000"}, {"--bytes", "4096"}, {"--rounds", "200"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!given.contains(argv[i])) fail("there is no such option");
    given[argv[i]] = argv[i + 1];
  }
  ciranda_context* world = nullptr;
  std::array<char, 512> message{};
  if (ciranda_init(nullptr, &world, message.data(), message.size()) != CIRANDA_OK) fail(message.data());
  Bench bench(world, static_cast<std::size_t>(numbers(given["--bytes"]).front()));
  for (const int n : numbers(given["--counts"])) {
    const auto [waited, called_back, directly] = bench.measure(n, numbers(given["--rounds"]).front());
    if (ciranda_rank(world) != 0) continue;
    std::printf(
        "{\"count\": %d, \"waited_us\": %.1f, \"called_back_us\": %.1f, \"directly_us\": %.1f, \"ratio\": %.2f, "
        "\"ratio_directly\": %.2f}\n",
        n, waited, called_back, directly, called_back / waited, directly / waited);
    std::fflush(stdout);
  }
  ciranda_shutdown(world);
  return 0;
}
