// A whole world of engines in one process, each rank a thread, over the loopback mesh.
#pragma once

#include <array>
#include <barrier>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/homes.hpp"
#include "engine/requests.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda::testing {

// A rank that never comes is an error long before the test is ended for hanging.
inline Config impatient_config() {
  Config config;
  config.stall_shutdown_seconds = 60;
  return config;
}

// What a rank never comes to fails soon, but later than those that are there have answered.
inline void end_stalls_soon(Config& config) {
#ifdef CIRANDA_SANITIZED
  constexpr double kSlower = 5;
#else
  constexpr double kSlower = 1;
#endif
  config.stall_warning_seconds = 0.05 * kSlower;
  config.stall_shutdown_seconds = 0.3 * kSlower;
}

struct WorldOptions {
  LoopbackOptions fabric;
  Config config = impatient_config();
  Homes homes = Homes::kHost;
  MayOthersCall may_others_call = nullptr;  // unless it says no, a rank is never known to stand
};

// What the ranks have in common.
enum class Layout : std::uint8_t {
  kArena,     // memory that all share
  kChannels,  // none
  kTwoHosts,  // each half its own: some pairs share memory, some do not; with relays where ranks are odd
};
inline constexpr std::array kLayouts{Layout::kArena, Layout::kChannels, Layout::kTwoHosts};

inline std::string to_string(Layout layout) {
  constexpr std::array kNames{"Arena", "Channels", "TwoHosts"};
  return kNames[static_cast<std::size_t>(layout)];
}

inline WorldOptions options_for(Layout layout, int size) {
  WorldOptions options;
  options.fabric.with_arena = layout != Layout::kChannels;
  if (layout == Layout::kTwoHosts) {
    for (int rank = 0; rank < size; ++rank) options.fabric.hosts.push_back(rank < (size + 1) / 2 ? "north" : "south");
    options.config.spin_microseconds = 0;  // the hosts share the cores of this one
    options.config.relays = size % 2 == 1;
  }
  return options;
}

// For rounds: ranks may be taken off their core for as long as they like, and come nevertheless.
inline WorldOptions patient() {
  WorldOptions options;
  options.config.spin_microseconds = 1e7;
  return options;
}

// A thread for each rank, kept from one run to the next: to start threads takes longer than most runs.
class RankThreads {
 public:
  explicit RankThreads(int n_ranks) : begins_(n_ranks + 1), ends_(n_ranks + 1) {
    for (int rank = 0; rank < n_ranks; ++rank) {
      threads_.emplace_back([this, rank] {
        for (begins_.arrive_and_wait(); body_ != nullptr; begins_.arrive_and_wait()) {
          (*body_)(rank);
          ends_.arrive_and_wait();
        }
      });
    }
  }
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;
  ~RankThreads() {
    body_ = nullptr;
    begins_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }

  void run(const std::function<void(int rank)>& body) {
    body_ = &body;
    begins_.arrive_and_wait();
    ends_.arrive_and_wait();
  }

 private:
  const std::function<void(int)>* body_ = nullptr;
  std::barrier<> begins_;
  std::barrier<> ends_;
  std::vector<std::thread> threads_;
};

class World {
 public:
  explicit World(int size, const WorldOptions& options = {})
      : World(size, [&options](int) -> const WorldOptions& { return options; }) {}

  // Ranks of different settings, by rank; the fabric and the homes are those of rank 0's.
  template <std::invocable<int> OptionsOf>
  World(int size, OptionsOf options_of)
      : fabric_(size, options_of(0).fabric), homes_(options_of(0).homes), threads_(size) {
    for (int rank = 0; rank < size; ++rank) {
      const WorldOptions& options = options_of(rank);
      engines_.push_back(
          Engine::create(fabric_.take_mesh(rank), options.config, backends_of(homes_), options.may_others_call));
    }
  }

  int size() const { return static_cast<int>(engines_.size()); }
  Engine& engine(int rank) { return *engines_[static_cast<std::size_t>(rank)]; }
  LoopbackFabric& fabric() { return fabric_; }

  // Runs `body` for each rank on its thread and waits for all.
  void run(const std::function<void(Engine&)>& body) {
    threads_.run([&](int rank) {
      const AtHome at(home_of(homes_, rank));
      body(engine(rank));
    });
  }

  // All ranks shut down together, as at the end of a script.
  void shutdown() {
    run([](Engine& engine) { engine.shutdown(); });
  }

  ~World() { shutdown(); }

 private:
  LoopbackFabric fabric_;
  Homes homes_;
  RankThreads threads_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

// Engine::wait(), after which the queue of this rank's home sees the result.
inline Status wait_at_home(Engine& engine, const Engine::OperationPtr& operation) {
  const Status status = engine.wait(operation);
  return status.ok() ? operation->order(home().place) : status;
}

// A request on one tensor, in place unless `output` is given; at home, as in run().
inline Request request(Collective collective, std::string name, DataType dtype, Shape shape, void* input,
                       void* output = nullptr) {
  Request r;
  r.name = std::move(name);
  r.signature.collective = collective;
  r.signature.tensors = {{dtype, std::move(shape)}};
  r.memory = {{static_cast<const std::byte*>(input), static_cast<std::byte*>(output == nullptr ? input : output),
               home().place}};
  return r;
}

// So that no thread waits for it.
inline void poll_until_done(Engine& engine, const Engine::OperationPtr& operation) {
  while (!engine.poll(operation)) std::this_thread::yield();
}

// Submits it. One that is not to be awaited is looked for once: then it has been taken in as what nobody waits for, and
// goes by the log, also if the caller waits next.
inline Engine::OperationPtr submit(Engine& engine, Request r) {
  const bool is_awaited = r.is_awaited;
  Engine::OperationPtr operation = submit_request(engine, std::move(r));
  if (!is_awaited) engine.poll(operation);
  return operation;
}

}  // namespace ciranda::testing
