// Measures the limits of this machine, with which the times of collectives can be compared.
//
//   limits [--seconds 0.2]
//
// Lines of JSON:
//   memory     GB/s at which 1, 2, ... threads together read, copy and add, by the size of a buffer (each thread has
//              a buffer of its own; copy counts 2 bytes, add 3, for each byte written)
//   cache_line time of a cache line from one core to another, in ns, for each pair of cores
//   arrival    time of a direct round of 4 bytes of two cores without the engine, in ns (the mean of many): each core
//              writes beside a word, adds itself to the word, and reads the value of the other
//   handover   time of data from a core's private memory to another's, through shared memory, in us (medians): to write
//              the data to the shared memory, which the writer has read last, and to read it
//   tcp        time of a byte over TCP to another thread of this machine, in us, and GB/s of large pieces: through the
//              loopback, and through a pair of virtual interfaces (veth) between two network namespaces, which needs
//              root and the program ip; with the system's default congestion control, and with reno
//
// All but arrival and handover are the best of several tries, because a disturbance can only make a try slower.
#include "limits.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace limits {

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) std::fprintf(stderr, "limits: cannot stay on core %d\n", cpu);
}

namespace {

constexpr int kTries = 5;
constexpr std::array<std::size_t, 7> kBufferBytes{16 << 10, 128 << 10, 512 << 10, 2 << 20,
                                                  8 << 20,  32 << 20,  128 << 20};

// Runs `body` on one thread for each CPU, concurrently.
void on_each(const std::vector<int>& cpus, const std::function<void(std::size_t)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    threads.emplace_back([&, i] {
      stay_on(cpus[i]);
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// --- memory

struct Buffers {
  explicit Buffers(std::size_t n_bytes) : a(n_bytes / sizeof(float), 1), b(a.size(), 2), out(a.size(), 0) {}
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> out;
  float sum = 0;  // uses the values read, so that the compiler keeps the reads
};

// Computes several sums at once: with a single sum, each addition would wait for the one before.
void read_all(Buffers& buffers) {
  std::array<float, 32> sums{};
  for (std::size_t i = 0; i + sums.size() <= buffers.a.size(); i += sums.size()) {
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += buffers.a[i + j];
  }
  for (const float sum : sums) buffers.sum += sum;
}
void copy_all(Buffers& buffers) { std::copy(buffers.a.begin(), buffers.a.end(), buffers.out.begin()); }
void add_all(Buffers& buffers) {
  std::transform(buffers.a.begin(), buffers.a.end(), buffers.b.begin(), buffers.out.begin(), std::plus<>());
}

struct Use {
  const char* name;
  void (*run)(Buffers&);
  std::size_t n_bytes_each;  // bytes moved for each element
};
constexpr std::array kUses{Use{"read", read_all, sizeof(float)}, Use{"copy", copy_all, 2 * sizeof(float)},
                           Use{"add", add_all, 3 * sizeof(float)}};

// Prevents the compiler from omitting a pass, or merging two.
void is_used(Buffers& buffers) { asm volatile("" : : "r"(&buffers) : "memory"); }

double gb_per_s(const Use& use, std::size_t n_bytes, const std::vector<int>& cpus, double seconds) {
  std::barrier together(static_cast<std::ptrdiff_t>(cpus.size()));
  std::vector<double> best(cpus.size(), 0);
  on_each(cpus, [&](std::size_t i) {
    Buffers buffers(n_bytes);
    const auto bytes_of_pass = static_cast<double>(buffers.a.size() * use.n_bytes_each);
    for (int attempt = 0; attempt < kTries; ++attempt) {
      together.arrive_and_wait();
      const auto begin = Clock::now();
      double n_passes = 0;
      do {
        use.run(buffers);
        is_used(buffers);
        ++n_passes;
      } while (seconds_since(begin) < seconds / kTries);
      best[i] = std::max(best[i], n_passes * bytes_of_pass / seconds_since(begin) / 1e9);
    }
  });
  double all = 0;
  for (const double rate : best) all += rate;
  return all;
}

void print_memory(const std::vector<int>& cpus, double seconds) {
  for (std::size_t n_threads = 1; n_threads <= cpus.size(); n_threads *= 2) {
    const std::vector<int> used(cpus.begin(), cpus.begin() + static_cast<std::ptrdiff_t>(n_threads));
    for (const std::size_t n_bytes : kBufferBytes) {
      std::printf("{\"limit\": \"memory\", \"threads\": %zu, \"bytes\": %zu", n_threads, n_bytes);
      for (const Use& use : kUses) {
        std::printf(", \"%s_gb_per_s\": %.2f", use.name, gb_per_s(use, n_bytes, used, seconds));
      }
      std::printf("}\n");
    }
  }
}

double seconds_asked(int n_arguments, char** arguments) {
  if (n_arguments == 1) return 0.2;
  if (n_arguments != 3 || std::string(arguments[1]) != "--seconds") return 0;
  return std::strtod(arguments[2], nullptr);
}

}  // namespace
}  // namespace limits

int main(int n_arguments, char** arguments) {
  const double seconds = limits::seconds_asked(n_arguments, arguments);
  if (!(seconds > 0)) {
    std::fprintf(stderr, "usage: limits [--seconds S]\n");
    return 2;
  }
  const std::vector<int> cpus = limits::usable_cpus();
  limits::print_memory(cpus, seconds);
  limits::print_cache_lines(cpus, seconds);
  limits::print_handovers(cpus);
  limits::print_network(cpus);
  return 0;
}
