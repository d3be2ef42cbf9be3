#include "settings.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

namespace ciranda::fakes {
namespace {

constexpr std::string_view kAny = "*";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse(const char* name, const std::string& value) {
  std::fprintf(stderr, "fake cuda: %s=%s: see tests/fakes/cuda.hpp\n", name, value.c_str());
  std::abort();
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <typename Number>
Number to_number(const char* name, const std::string& text) {
  char* end = nullptr;
  const auto number = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0') refuse(name, text);
  return static_cast<Number>(number);
}

template <typename Number>
void read(const char* name, Number& to) {
  if (const std::string text = variable(name); !text.empty()) to = to_number<Number>(name, text);
}

void read(const char* name, bool& to) {
  unsigned is_on = to ? 1 : 0;
  read(name, is_on);
  to = is_on != 0;
}

std::vector<Fault> read_faults(const char* name) {
  std::vector<Fault> faults;
  for (const std::string& each : split(variable(name), ',')) {
    const auto parts = split(each, ':');
    if (parts.size() != 3) refuse(name, each);
    const CUresult error = parts[2] == "hangs" ? Fault::kHangs : CUresult{to_number<int>(name, parts[2])};
    faults.push_back({parts[0], to_number<std::uint64_t>(name, parts[1]), error});
  }
  return faults;
}

std::vector<Still> read_stills(const char* name) {
  std::vector<Still> stills;
  for (const std::string& each : split(variable(name), ',')) {
    const auto parts = split(each, ':');
    if (parts.size() != 3) refuse(name, each);
    stills.push_back({to_number<unsigned>(name, parts[0]), to_number<std::uint64_t>(name, parts[1]), parts[2]});
  }
  return stills;
}

Ipc read_ipc(const char* name) {
  const std::string text = variable(name);
  if (text.empty() || text == "1") return Ipc::kWorks;
  if (text == "within") return Ipc::kWithinToo;
  if (text == "no_export") return Ipc::kNoExport;
  if (text == "no_import" || text == "0") return Ipc::kNoImport;
  refuse(name, text);
}

std::vector<int> read_gpus() {
  int n_gpus = 1;
  read("FAKE_CUDA_DEVICES", n_gpus);
  std::vector<int> gpus(static_cast<std::size_t>(n_gpus));
  std::iota(gpus.begin(), gpus.end(), 0);
  constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
  if (std::getenv(kVisible) == nullptr) return gpus;
  std::vector<int> visible;
  for (const std::string& each : split(variable(kVisible), ',')) {
    const int gpu = each.front() == '-' ? -1 : to_number<int>(kVisible, each);
    if (gpu < 0 || gpu >= n_gpus) break;  // as the driver does: what follows is not visible either
    visible.push_back(gpu);
  }
  return visible;
}

std::shared_ptr<const Settings> read_all() {
  auto all = std::make_shared<Settings>();
  all->gpus = read_gpus();
  read("FAKE_CUDA_VERSION", all->version);
  int init = 0;
  read("FAKE_CUDA_INIT", init);
  all->init = CUresult{init};
  for (std::string& each : split(variable("FAKE_CUDA_MISSING"), ',')) all->missing.insert(std::move(each));
  all->call_faults = read_faults("FAKE_CUDA_FAIL");
  all->run_faults = read_faults("FAKE_CUDA_FAIL_RUN");
  all->stills = read_stills("FAKE_CUDA_STILL");
  read("FAKE_CUDA_DELAY_SEED", all->delay_seed);
  read("FAKE_CUDA_DELAY_US", all->longest_delay_us);
  read("FAKE_CUDA_QUEUE", all->longest_queue);
  all->ipc = read_ipc("FAKE_CUDA_IPC");
  read("FAKE_CUDA_REGISTER", all->registers);
  read("FAKE_CUDA_MEMORY", all->most_device_bytes);
  read("FAKE_CUDA_PINNED", all->most_pinned_bytes);
  read("FAKE_CUDA_CHECK", all->checks);
  read("FAKE_CUDA_THREADS_APART", all->are_threads_apart);
  read("FAKE_CUDA_CONTEXT_LOCK", all->locks_contexts);
  return all;
}

class Counters {
 public:
  CUresult count(std::string_view call, const std::vector<Fault>& faults) {
    const std::lock_guard lock(mutex_);
    ++n_all_;
    auto at = by_call_.find(call);
    if (at == by_call_.end()) at = by_call_.emplace(call, 0).first;
    const std::uint64_t nth = ++at->second;
    for (const Fault& each : faults) {
      if (each.call == kAny ? each.nth == n_all_ : each.call == call && each.nth == nth) return each.error;
    }
    return CUresult::kSuccess;
  }

  void reset() {
    const std::lock_guard lock(mutex_);
    n_all_ = 0;
    by_call_.clear();
  }

  std::uint64_t n_all() {
    const std::lock_guard lock(mutex_);
    return n_all_;
  }

  std::uint64_t n_of(std::string_view call) {
    const std::lock_guard lock(mutex_);
    const auto at = by_call_.find(call);
    return at == by_call_.end() ? 0 : at->second;
  }

 private:
  std::mutex mutex_;
  std::uint64_t n_all_ = 0;
  std::map<std::string, std::uint64_t, std::less<>> by_call_;
};

// Outlives the threads of the streams, which run while the process ends.
struct State {
  std::mutex mutex;
  std::shared_ptr<const Settings> settings = read_all();
  Counters calls;
  Counters runs;
};

State& state() {
  static auto* const kept = new State;
  return *kept;
}

}  // namespace

std::shared_ptr<const Settings> settings() {
  const std::lock_guard lock(state().mutex);
  return state().settings;
}

void reread_settings() {
  auto all = read_all();
  const std::lock_guard lock(state().mutex);
  state().settings = std::move(all);
  state().calls.reset();
  state().runs.reset();
}

CUresult count_call(std::string_view call) {
  const CUresult failed = state().calls.count(call, settings()->call_faults);
  while (failed == Fault::kHangs) std::this_thread::sleep_for(std::chrono::hours(1));
  return failed;
}
CUresult count_run(std::string_view call) { return state().runs.count(call, settings()->run_faults); }
std::uint64_t n_calls() { return state().calls.n_all(); }
std::uint64_t n_calls_of(std::string_view call) { return state().calls.n_of(call); }

}  // namespace ciranda::fakes
