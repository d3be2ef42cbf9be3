// Measures how fast one core's stores reach another: single cache lines, and larger pieces through shared memory.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/copy_bytes.hpp"
#include "base/relax.hpp"
#include "base/turns.hpp"
#include "limits.hpp"
#include "transport/arrivals.hpp"

namespace limits {
namespace {

constexpr std::array<std::size_t, 5> kPieceBytes{16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};

// Runs body(0) and body(1) concurrently, each on its core.
template <typename Body>
void on_both(int first, int second, const Body& body) {
  std::thread other([&] {
    stay_on(second);
    body(std::size_t{1});
  });
  std::thread one([&] {
    stay_on(first);
    body(std::size_t{0});
  });
  one.join();
  other.join();
}

double one_way_ns(int first, int second, double seconds) {
  using ciranda::Turns;
  struct alignas(128) Line {
    std::atomic<std::uint64_t> word{0};
  } line;
  const auto end =
      Turns::Clock::now() + std::chrono::duration_cast<Turns::Clock::duration>(std::chrono::duration<double>(seconds));
  double best = 1e9;
  on_both(first, second, [&](std::size_t self) {
    Turns turns(line.word, self == 0 ? Turns::Side::kFirst : Turns::Side::kSecond);
    while (const auto found = turns.one_way_ns(end)) {
      if (self == 0) best = std::min(best, *found);
    }
  });
  return best;
}

// The time of a direct round without the engine: both threads write four bytes beside a word, arrive at the word, and
// read the other's bytes.
double arrival_ns(int first, int second) {
  constexpr std::uint64_t kRounds = 200'000;
  struct alignas(128) Line {
    std::atomic<std::uint64_t> word{0};
    std::array<std::array<std::atomic<float>, 2>, 2> beside{};  // by parity of the round, and by thread
  } line;
  double found = 0;
  on_both(first, second, [&](std::size_t self) {
    ciranda::Arrivals arrivals(line.word, 2);
    const auto begin = Clock::now();
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      auto& beside = line.beside[round % 2];
      beside[self].store(1, std::memory_order_relaxed);
      arrivals.arrive(round);
      while (!arrivals.is_complete(round)) ciranda::relax();
      if (beside[0].load(std::memory_order_relaxed) + beside[1].load(std::memory_order_relaxed) != 2) std::abort();
    }
    if (self == 0) found = seconds_since(begin) * 1e9 / static_cast<double>(kRounds);
  });
  return found;
}

double median(std::vector<double>& values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Two threads pass a piece to and fro: one rewrites its private memory and copies it to the shared memory, from which
// it has just read; the other copies it out. This is the cheapest way between private memories without the kernel.
class Handover {
 public:
  explicit Handover(std::size_t n_bytes) : shared_(n_bytes) {}

  void run(std::size_t place) {
    std::vector<std::byte> own(shared_.size());
    const std::uint64_t n_turns = std::max(kLeastTurns, kAllBytes / shared_.size());
    for (std::uint64_t turn = 0; turn < n_turns; ++turn) {
      if (turn % 2 == place) {
        while (n_read_.load(std::memory_order_acquire) != turn) {
        }
        std::ranges::fill(own, static_cast<std::byte>(turn));
        write_us_.push_back(
            micros([&] { ciranda::copy_by(ciranda::StagingCopy::kCached, shared_.data(), own.data(), own.size()); }));
        n_written_.store(turn + 1, std::memory_order_release);
      } else {
        while (n_written_.load(std::memory_order_acquire) != turn + 1) {
        }
        read_us_.push_back(micros([&] { ciranda::copy_bytes(own.data(), shared_.data(), own.size()); }));
        n_read_.store(turn + 1, std::memory_order_release);
      }
    }
  }

  double write_us() { return median(write_us_); }
  double read_us() { return median(read_us_); }

 private:
  template <typename Body>
  static double micros(Body body) {
    const auto begin = Clock::now();
    body();
    return seconds_since(begin) * 1e6;
  }

  static constexpr std::uint64_t kLeastTurns = 20;
  static constexpr std::uint64_t kAllBytes = 64 << 20;

  std::vector<std::byte> shared_;
  alignas(128) std::atomic<std::uint64_t> n_written_{0};
  alignas(128) std::atomic<std::uint64_t> n_read_{0};
  std::vector<double> write_us_;  // the threads append in turns
  std::vector<double> read_us_;
};

}  // namespace

void print_cache_lines(const std::vector<int>& cpus, double seconds) {
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    for (std::size_t j = i + 1; j < cpus.size(); ++j) {
      std::printf("{\"limit\": \"cache_line\", \"cores\": [%d, %d], \"one_way_ns\": %.1f}\n", cpus[i], cpus[j],
                  one_way_ns(cpus[i], cpus[j], seconds));
      std::printf("{\"limit\": \"arrival\", \"cores\": [%d, %d], \"round_ns\": %.1f}\n", cpus[i], cpus[j],
                  arrival_ns(cpus[i], cpus[j]));
    }
  }
}

void print_handovers(const std::vector<int>& cpus) {
  if (cpus.size() < 2) return;
  for (const std::size_t n_bytes : kPieceBytes) {
    Handover handover(n_bytes);
    on_both(cpus[0], cpus[1], [&](std::size_t place) { handover.run(place); });
    std::printf("{\"limit\": \"handover\", \"bytes\": %zu, \"write_us\": %.2f, \"read_us\": %.2f}\n", n_bytes,
                handover.write_us(), handover.read_us());
  }
}

}  // namespace limits
