// What each rank does for benchmarks/peers.py --cpp, which starts it: checks and times collectives in several systems,
// in turns, on the same memory; rank 0 writes what was found to FOLDER/found.json.
//
//   peers_rank FOLDER COLLECTIVES DTYPE SIZES SECONDS ITERATIONS PIN [NAME=MODULE ...]
//
// Lists are separated by commas; sizes are of the result, in bytes. As in the Python of peers_rank.py: the buffer is
// written anew before every call, outside the time; a call's time counts from the last rank's call to the last rank's
// return; systems take ten turns each.
#include <dlfcn.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "ciranda_system.hpp"
#include "numbers.hpp"

namespace {

using peers::Call;
using peers::Case;
using peers::Collective;
using peers::DataType;
using peers::System;

constexpr std::array<std::pair<const char*, Collective>, 6> kCollectives{{{"allreduce", Collective::kAllreduce},
                                                                          {"broadcast", Collective::kBroadcast},
                                                                          {"allgather", Collective::kAllgather},
                                                                          {"reducescatter", Collective::kReducescatter},
                                                                          {"alltoall", Collective::kAlltoall},
                                                                          {"allreduces", Collective::kManyAllreduces}}};
constexpr std::array<std::pair<const char*, DataType>, 3> kDataTypes{
    {{"float32", DataType::kFloat32}, {"float16", DataType::kFloat16}, {"bfloat16", DataType::kBFloat16}}};
constexpr int kArguments = 7;  // and then the peers
constexpr int kTurns = 10;
constexpr int kWarmUp = 5;
constexpr std::int64_t kLeastCalls = 5;
constexpr std::size_t kPatternLength = 5;

struct Plan {
  std::string folder;
  std::vector<std::string> collectives;
  DataType dtype;
  std::vector<std::size_t> sizes;
  double seconds;
  std::int64_t iterations;
  bool pin;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

template <typename Table>
auto named(const std::string& name, const Table& table) {
  for (const auto& [known, value] : table) {
    if (name == known) return value;
  }
  throw std::invalid_argument("there is no \"" + name + '"');
}

Plan parse(char** arguments) {
  Plan plan{arguments[1],
            split(arguments[2]),
            named(arguments[3], kDataTypes),
            {},
            std::atof(arguments[5]),
            std::atoll(arguments[6]),
            arguments[7][0] == '1'};
  for (const std::string& size : split(arguments[4])) plan.sizes.push_back(std::stoull(size));
  return plan;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// --- who takes part

// mpiexec knows which rank this is, if it started it.
void identify() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name)) setenv("CIRANDA_RANK", rank, 0);
  }
  const std::string size = std::getenv("CIRANDA_SIZE");
  setenv("CIRANDA_LOCAL_RANK", std::getenv("CIRANDA_RANK"), 1);
  setenv("CIRANDA_LOCAL_SIZE", size.c_str(), 1);
  setenv("CIRANDA_CROSS_RANK", "0", 1);
  setenv("CIRANDA_CROSS_SIZE", "1", 1);
}

void stay_on_core(int rank) {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  int wanted = rank % CPU_COUNT(&usable);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable) || wanted-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

struct Named {
  std::string name;
  std::unique_ptr<System> system;
};

Named load(const std::string& argument, const peers::World& world) {
  const std::size_t equals = argument.find('=');
  const std::string module = argument.substr(equals + 1);
  void* handle = dlopen(module.c_str(), RTLD_NOW | RTLD_GLOBAL);  // an MPI's own plug-ins look for its symbols
  if (handle == nullptr) throw std::runtime_error(dlerror());
  const auto open = reinterpret_cast<peers::OpenSystem>(dlsym(handle, "open_system"));
  if (open == nullptr) throw std::runtime_error(module + " has no open_system");
  return {argument.substr(0, equals), std::unique_ptr<System>(open(world))};
}

// --- right answers: small whole numbers that differ by place and rank

float pattern(std::size_t place, std::size_t rank) { return static_cast<float>((place * 2 + rank) % kPatternLength); }

float sum_of_patterns(std::size_t place, std::size_t n_ranks) {
  float sum = 0;
  for (std::size_t rank = 0; rank < n_ranks; ++rank) sum += pattern(place, rank);
  return sum;
}

float expected(Collective collective, std::size_t place, std::size_t count, std::size_t rank, std::size_t n_ranks) {
  const std::size_t part = count / n_ranks;
  switch (collective) {
    case Collective::kAllreduce:
    case Collective::kManyAllreduces: return sum_of_patterns(place, n_ranks);
    case Collective::kBroadcast: return pattern(place, 0);
    case Collective::kAllgather: return pattern(place % count, place / count);
    case Collective::kReducescatter: return sum_of_patterns(rank * part + place, n_ranks);
    case Collective::kAlltoall: return pattern(rank * part + place % part, place / part);
  }
  return 0;
}

// --- measuring

struct Measured {
  std::string name;
  std::int64_t n_wrong = 0;
  std::int64_t n_calls = 0;
  Call call;
  std::vector<std::int64_t> starts;
  std::vector<std::int64_t> ends;
  std::vector<double> times_us;  // the same on all ranks
};

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (place - static_cast<double>(below));
}

class Rank {
 public:
  Rank(Plan plan, ciranda::Context& circle, std::vector<Named>& systems)
      : plan_(std::move(plan)), circle_(circle), systems_(systems) {}

  void measure_all(std::ostream& out) {
    const char* separator = "";
    out << "\"rows\": [";
    for (const std::string& name : plan_.collectives) {
      for (const std::size_t n_bytes : plan_.sizes) {
        out << separator;
        measure(name, n_bytes, out);
        separator = ", ";
      }
    }
    out << ']';
  }

 private:
  std::size_t n_ranks() const { return static_cast<std::size_t>(circle_.size()); }

  void measure(const std::string& collective, std::size_t n_bytes, std::ostream& out) {
    const Collective kind = named(collective, kCollectives);
    const std::size_t n_each = size_of(plan_.dtype);
    const std::size_t n_parts = kind == Collective::kAllgather ? n_ranks() : 1;
    std::size_t count = std::max<std::size_t>(1, n_bytes / n_each / n_parts);
    if (kind == Collective::kReducescatter || kind == Collective::kAlltoall) {
      count = std::max<std::size_t>(1, count / n_ranks()) * n_ranks();
    }
    buffer_.assign(count * n_each, std::byte{});
    result_.assign(count * n_parts * n_each, std::byte{});
    const Case what{kind, plan_.dtype, count, "peers." + collective + "." + std::to_string(count)};
    std::vector<Measured> found = bind(what);
    std::vector<double> floors;
    for (int turn = 0; turn < kTurns; ++turn) {
      for (std::size_t i = 0; i < found.size(); ++i) time_turn(found[turn % 2 == 0 ? i : found.size() - 1 - i], turn);
      time_floor(floors, std::clamp<std::int64_t>(found[0].n_calls / kTurns, 3, 20));
    }
    for (Measured& one : found) gather_times(one);
    write(collective, result_.size(), found, quantile(floors, 0.5), out);
  }

  std::vector<Measured> bind(const Case& what) {
    std::vector<Measured> found;
    for (const Named& named : systems_) {
      Measured one;
      one.name = named.name;
      one.call = named.system->bind(what, buffer_, result_);
      if (!one.call) continue;
      one.n_wrong = count_wrong(what, one.call);
      one.n_calls = choose_calls(one.call);
      found.push_back(std::move(one));
    }
    return found;
  }

  std::int64_t count_wrong(const Case& what, const Call& call) {
    std::int64_t n_wrong = peers::with_type(what.dtype, [&]<typename T>() { return count_wrong_of<T>(what, call); });
    circle_.allreduce(std::span(&n_wrong, 1), {.name = "peers.wrong"});
    return n_wrong;
  }

  template <typename T>
  std::int64_t count_wrong_of(const Case& what, const Call& call) {
    const auto rank = static_cast<std::size_t>(circle_.rank());
    const std::span<T> values = peers::as<T>(std::span(buffer_));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = peers::number<T>(pattern(i, rank));
    const std::span<const T> result = peers::as<T>(call());
    std::int64_t n_wrong = 0;
    for (std::size_t i = 0; i < result.size(); ++i) {
      n_wrong += result[i] != peers::number<T>(expected(what.collective, i, what.count, rank, n_ranks()));
    }
    return n_wrong;
  }

  void write_anew(float value) {
    peers::with_type(plan_.dtype, [&]<typename T>() {
      const std::span<T> values = peers::as<T>(std::span(buffer_));
      std::fill(values.begin(), values.end(), peers::number<T>(value));
    });
  }

  // Warms up, and agrees on how many calls fit into the time there is.
  std::int64_t choose_calls(const Call& call) {
    double least = 1e9;
    for (int i = 0; i < kWarmUp; ++i) {
      write_anew(0);
      const std::int64_t start = now_ns();
      call();
      least = std::min(least, static_cast<double>(now_ns() - start) / 1e9);
    }
    std::int64_t n_calls = std::min(plan_.iterations, std::max(kLeastCalls, std::int64_t(plan_.seconds / least)));
    circle_.broadcast(std::span(&n_calls, 1), {.name = "peers.calls"});
    return n_calls;
  }

  void time_turn(Measured& one, int turn) {
    const std::int64_t n_calls = one.n_calls * (turn + 1) / kTurns - one.n_calls * turn / kTurns;
    if (n_calls > 0) one.call();  // the first call after another system's turn finds that one's traces
    for (std::int64_t i = 0; i < n_calls; ++i) {
      write_anew(1);
      one.starts.push_back(now_ns());
      one.call();
      one.ends.push_back(now_ns());
    }
  }

  // All ranks at once read and write as many bytes as the result has.
  void time_floor(std::vector<double>& times_us, std::int64_t n_calls) {
    const std::span<std::uint16_t> words = peers::as<std::uint16_t>(std::span(result_));
    for (std::int64_t i = 0; i < n_calls; ++i) {
      circle_.barrier();
      const std::int64_t start = now_ns();
      for (std::uint16_t& bits : words) bits ^= 0x8000;
      times_us.push_back(static_cast<double>(now_ns() - start) / 1e3);
    }
  }

  void gather_times(Measured& one) {
    circle_.allreduce(std::span(one.starts), {.name = "peers.starts." + one.name, .op = ciranda::ReduceOp::kMax});
    circle_.allreduce(std::span(one.ends), {.name = "peers.ends." + one.name, .op = ciranda::ReduceOp::kMax});
    for (std::size_t i = 0; i < one.starts.size(); ++i) {
      one.times_us.push_back(static_cast<double>(one.ends[i] - one.starts[i]) / 1e3);
    }
  }

  static void write(const std::string& collective, std::size_t n_bytes, const std::vector<Measured>& found,
                    double floor_us, std::ostream& out) {
    out << "{\"collective\": \"" << collective << "\", \"n_bytes\": " << n_bytes << ", \"systems\": {";
    const char* separator = "";
    for (const Measured& one : found) {
      out << separator << '"' << one.name << "\": {\"median_us\": " << quantile(one.times_us, 0.5)
          << ", \"low_us\": " << quantile(one.times_us, 0.25) << ", \"high_us\": " << quantile(one.times_us, 0.75)
          << ", \"min_us\": " << quantile(one.times_us, 0) << ", \"n_wrong\": " << one.n_wrong
          << ", \"iterations\": " << one.times_us.size() << '}';
      separator = ", ";
    }
    out << "}, \"floor_us\": " << floor_us << '}';
  }

  Plan plan_;
  ciranda::Context& circle_;
  std::vector<Named>& systems_;
  std::vector<std::byte> buffer_;
  std::vector<std::byte> result_;
};

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void run(int count, char** arguments) {
  const Plan plan = parse(arguments);
  identify();
  ciranda::Context circle;
  if (plan.pin) stay_on_core(circle.rank());
  const peers::World world{circle.rank(), circle.size(), plan.folder, [&circle](std::span<std::byte> bytes) {
                             auto* data = reinterpret_cast<std::uint8_t*>(bytes.data());
                             circle.broadcast(std::span(data, bytes.size()));
                           }};
  std::vector<Named> systems;
  systems.push_back({"ciranda", std::make_unique<peers::CirandaSystem>(circle)});
  for (int i = kArguments + 1; i < count; ++i) systems.push_back(load(arguments[i], world));

  std::ostringstream found;
  found << '{';
  const std::int64_t began = now_ns();
  Rank(plan, circle, systems).measure_all(found);
  double used = processor_seconds();
  circle.allreduce(std::span(&used, 1));
  found << ", \"versions\": {";
  for (std::size_t i = 0; i < systems.size(); ++i) {
    found << (i == 0 ? "" : ", ") << '"' << systems[i].name << "\": \"" << systems[i].system->version() << '"';
  }
  found << "}, \"rewrite_gb_per_s\": {}, \"wall_seconds\": " << static_cast<double>(now_ns() - began) / 1e9
        << ", \"used_seconds\": " << used << '}';
  if (circle.rank() == 0) std::ofstream(plan.folder + "/found.json") << found.str() << '\n';
  circle.barrier();
}

}  // namespace

int main(int count, char** arguments) {
  if (count <= kArguments) {
    std::fprintf(stderr, "usage: peers_rank FOLDER COLLECTIVES DTYPE SIZES SECONDS ITERATIONS PIN [NAME=MODULE ...]\n");
    return 2;
  }
  try {
    run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peers_rank: %s\n", error.what());
    return 1;
  }
}
