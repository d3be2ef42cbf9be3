// A whole world of engines in one process, each rank a thread, over the loopback mesh.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.hpp"
#include "engine/homes.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda::testing {

// A rank that never comes is an error long before the test is ended for hanging.
inline Config impatient_config() {
  Config config;
  config.stall_shutdown_seconds = 60;
  return config;
}

struct WorldOptions {
  LoopbackOptions fabric;
  Config config = impatient_config();
  Homes homes = Homes::kHost;
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

class World {
 public:
  explicit World(int size, const WorldOptions& options = {})
      : World(size, [&options](int) -> const WorldOptions& { return options; }) {}

  // Ranks of different settings, by rank; the fabric and the homes are those of rank 0's.
  template <std::invocable<int> OptionsOf>
  World(int size, OptionsOf options_of) : fabric_(size, options_of(0).fabric), homes_(options_of(0).homes) {
    for (int rank = 0; rank < size; ++rank) {
      engines_.push_back(Engine::create(fabric_.take_mesh(rank), options_of(rank).config, backends_with_paged()));
    }
  }

  int size() const { return static_cast<int>(engines_.size()); }
  Engine& engine(int rank) { return *engines_[static_cast<std::size_t>(rank)]; }
  LoopbackFabric& fabric() { return fabric_; }

  // Runs `body` for each rank on a thread of its own and waits for all.
  void run(const std::function<void(Engine&)>& body) {
    std::vector<std::thread> threads;
    for (auto& engine : engines_) {
      threads.emplace_back([this, &body, &engine] {
        const AtHome at(home_of(homes_, engine->rank()));
        body(*engine);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // All ranks shut down together, as at the end of a script.
  void shutdown() {
    run([](Engine& engine) { engine.shutdown(); });
  }

  ~World() { shutdown(); }

 private:
  LoopbackFabric fabric_;
  Homes homes_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

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

}  // namespace ciranda::testing
