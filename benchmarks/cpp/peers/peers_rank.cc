// The program of each rank of benchmarks/peers.py --cpp, which starts it. It checks and times collectives of several
// systems, in turns, on the same memory. Rank 0 writes the results to FOLDER/found.json.
//
//   peers_rank FOLDER COLLECTIVES DTYPE SIZES SECONDS ITERATIONS PIN UNTIL_BOTH [NAME=MODULE ...]
//
// Lists are separated by commas; sizes are of the result, in bytes. The method is that of peers_rank.py. The buffer is
// rewritten before every call, outside the measured time. The time of a call is from the last rank's call to the last
// rank's return. Each system takes ten turns or more, of 15 ms at most; the distance of the cores is measured between
// turns. Times at different distances are kept apart. Turns continue for up to UNTIL_BOTH seconds until there are
// enough times at both distances.
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
#include "distance.hpp"
#include "measured.hpp"
#include "numbers.hpp"

namespace {

using peers::Call;
using peers::Case;
using peers::Collective;
using peers::DataType;
using peers::Distance;
using peers::Measured;
using peers::System;

constexpr std::array<std::pair<const char*, Collective>, 6> kCollectives{{{"allreduce", Collective::kAllreduce},
                                                                          {"broadcast", Collective::kBroadcast},
                                                                          {"allgather", Collective::kAllgather},
                                                                          {"reducescatter", Collective::kReducescatter},
                                                                          {"alltoall", Collective::kAlltoall},
                                                                          {"allreduces", Collective::kManyAllreduces}}};
constexpr std::array<std::pair<const char*, DataType>, 3> kDataTypes{
    {{"float32", DataType::kFloat32}, {"float16", DataType::kFloat16}, {"bfloat16", DataType::kBFloat16}}};
constexpr int kArguments = 8;  // before the peers
constexpr int kLeastTurns = 10;
constexpr double kMostTurnSeconds = 0.015;  // cores move every few seconds
constexpr std::size_t kLeastTimes = 10;     // of each system, near and far, that end the extra turns
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
  double until_both;  // seconds
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
            arguments[7][0] == '1',
            std::atof(arguments[8])};
  for (const std::string& size : split(arguments[4])) plan.sizes.push_back(std::stoull(size));
  return plan;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// --- who takes part

// If mpiexec started this process, takes the rank from mpiexec's variables.
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

// --- expected results: small whole numbers that differ by place and rank

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

class Rank {
 public:
  Rank(Plan plan, ciranda::Context& context, std::vector<Named>& systems, bool can_probe)
      : plan_(std::move(plan)),
        context_(context),
        systems_(systems),
        probe_(plan_.folder, context.rank(), context.size()),
        can_probe_(can_probe) {}

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
  std::size_t n_ranks() const { return static_cast<std::size_t>(context_.size()); }

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
    const std::int64_t n_turns = agreed(turns_for(found));
    const std::int64_t began = now_ns();
    line_ns_ = line_ns();
    for (std::int64_t turn = 0; agreed(turn < n_turns || must_go_on(found, began)) != 0; ++turn) {
      for (std::size_t i = 0; i < found.size(); ++i) {
        time_turn(found[turn % 2 == 0 ? i : found.size() - 1 - i], turn, n_turns);
      }
      if (turn < n_turns) time_floor(floors, std::clamp<std::int64_t>(found[0].n_calls / n_turns, 3, 20));
    }
    for (Measured& one : found) gather_times(one);
    write_rows(collective, result_.size(), found, peers::quantile(floors, 0.5), out);
  }

  // Returns rank 0's number on all ranks.
  std::int64_t agreed(std::int64_t number) {
    context_.broadcast(std::span(&number, 1), {.name = "peers.agreed"});
    return number;
  }

  static std::int64_t turns_for(const std::vector<Measured>& found) {
    double most = kLeastTurns;
    for (const Measured& one : found) {
      most = std::max(most, static_cast<double>(one.n_calls) * one.least_seconds / kMostTurnSeconds);
    }
    return static_cast<std::int64_t>(most);
  }

  bool must_go_on(const std::vector<Measured>& found, std::int64_t began) const {
    if (static_cast<double>(now_ns() - began) / 1e9 >= plan_.until_both) return false;
    return std::ranges::any_of(found, [](const Measured& one) {
      const auto n_at = [&](Distance distance) {
        return static_cast<std::size_t>(std::ranges::count(one.distances, distance));
      };
      return std::min(n_at(Distance::kNear), n_at(Distance::kFar)) < kLeastTimes;
    });
  }

  // The time of a cache line between the neighbours that are farthest apart.
  double line_ns() {
    if (!can_probe_) return 0;
    double found = probe_.one_way_ns();
    context_.allreduce(std::span(&found, 1), {.name = "peers.line", .op = ciranda::ReduceOp::kMax});
    return found;
  }

  std::vector<Measured> bind(const Case& what) {
    std::vector<Measured> found;
    for (const Named& named : systems_) {
      Measured one;
      one.name = named.name;
      one.call = named.system->bind(what, buffer_, result_);
      if (!one.call) continue;
      one.n_wrong = count_wrong(what, one.call);
      choose_calls(one);
      found.push_back(std::move(one));
    }
    return found;
  }

  std::int64_t count_wrong(const Case& what, const Call& call) {
    std::int64_t n_wrong = peers::with_type(what.dtype, [&]<typename T>() { return count_wrong_of<T>(what, call); });
    context_.allreduce(std::span(&n_wrong, 1), {.name = "peers.wrong"});
    return n_wrong;
  }

  template <typename T>
  std::int64_t count_wrong_of(const Case& what, const Call& call) {
    const auto rank = static_cast<std::size_t>(context_.rank());
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

  // Warms up, and agrees on the number of calls that fit into the given time.
  void choose_calls(Measured& one) {
    for (int i = 0; i < kWarmUp; ++i) {
      write_anew(0);
      const std::int64_t start = now_ns();
      one.call();
      one.least_seconds = std::min(one.least_seconds, static_cast<double>(now_ns() - start) / 1e9);
    }
    const auto that_fit = static_cast<std::int64_t>(plan_.seconds / one.least_seconds);
    one.n_calls = agreed(std::min(plan_.iterations, std::max(kLeastCalls, that_fit)));
  }

  void time_turn(Measured& one, std::int64_t turn, std::int64_t n_turns) {
    const std::int64_t n_calls = one.n_calls * (turn + 1) / n_turns - one.n_calls * turn / n_turns;
    if (n_calls == 0) return;
    one.call();  // not timed: the caches still hold data of the previous system
    for (std::int64_t i = 0; i < n_calls; ++i) {
      write_anew(1);
      one.starts.push_back(now_ns());
      one.call();
      one.ends.push_back(now_ns());
    }
    const double before_ns = std::exchange(line_ns_, line_ns());
    const Distance distance = can_probe_ ? peers::distance_of(before_ns, line_ns_) : Distance::kUnknown;
    one.distances.resize(one.starts.size(), distance);
  }

  // Times reading and writing as many bytes as the result has, on all ranks at the same time.
  void time_floor(std::vector<double>& times_us, std::int64_t n_calls) {
    const std::span<std::uint16_t> words = peers::as<std::uint16_t>(std::span(result_));
    for (std::int64_t i = 0; i < n_calls; ++i) {
      context_.barrier();
      const std::int64_t start = now_ns();
      for (std::uint16_t& bits : words) bits ^= 0x8000;
      times_us.push_back(static_cast<double>(now_ns() - start) / 1e3);
    }
  }

  void gather_times(Measured& one) {
    context_.allreduce(std::span(one.starts), {.name = "peers.starts." + one.name, .op = ciranda::ReduceOp::kMax});
    context_.allreduce(std::span(one.ends), {.name = "peers.ends." + one.name, .op = ciranda::ReduceOp::kMax});
    for (std::size_t i = 0; i < one.starts.size(); ++i) {
      one.times_us.push_back(static_cast<double>(one.ends[i] - one.starts[i]) / 1e3);
    }
  }

  Plan plan_;
  ciranda::Context& context_;
  std::vector<Named>& systems_;
  peers::LineProbe probe_;
  bool can_probe_;
  double line_ns_ = 0;  // as last measured
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
  ciranda::Context context;
  const bool can_probe = context.size() > 1 && peers::LineProbe::is_possible(context.size());
  if (plan.pin) stay_on_core(context.rank());
  const peers::World world{context.rank(), context.size(), plan.folder, [&context](std::span<std::byte> bytes) {
                             auto* data = reinterpret_cast<std::uint8_t*>(bytes.data());
                             context.broadcast(std::span(data, bytes.size()));
                           }};
  std::vector<Named> systems;
  systems.push_back({"ciranda", std::make_unique<peers::CirandaSystem>(context)});
  for (int i = kArguments + 1; i < count; ++i) systems.push_back(load(arguments[i], world));

  std::ostringstream found;
  found << '{';
  const std::int64_t began = now_ns();
  Rank(plan, context, systems, can_probe).measure_all(found);
  double used = processor_seconds();
  context.allreduce(std::span(&used, 1));
  found << ", \"versions\": {";
  for (std::size_t i = 0; i < systems.size(); ++i) {
    found << (i == 0 ? "" : ", ") << '"' << systems[i].name << "\": \"" << systems[i].system->version() << '"';
  }
  found << "}, \"rewrite_gb_per_s\": {}, \"wall_seconds\": " << static_cast<double>(now_ns() - began) / 1e9
        << ", \"used_seconds\": " << used << '}';
  if (context.rank() == 0) std::ofstream(plan.folder + "/found.json") << found.str() << '\n';
  context.barrier();
}

}  // namespace

int main(int count, char** arguments) {
  if (count <= kArguments) {
    std::fprintf(stderr,
                 "usage: peers_rank FOLDER COLLECTIVES DTYPE SIZES SECONDS ITERATIONS PIN UNTIL_BOTH "
                 "[NAME=MODULE ...]\n");
    return 2;
  }
  try {
    run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peers_rank: %s\n", error.what());
    return 1;
  }
}
