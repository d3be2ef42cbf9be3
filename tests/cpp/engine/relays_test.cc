// Several hosts: what ranks report is gathered by relays, and groups of names go by number; results and errors are
// what they are without.
#include <gtest/gtest.h>

#include <cstdint>
#include <latch>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/sets.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"

namespace ciranda {
namespace {

using OperationPtr = Engine::OperationPtr;
using testing::bare;
using testing::request;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

constexpr int kLearned = 8;  // steps, after which groups are used and gathered

struct Hosts {
  std::string name;
  std::vector<std::string> of_rank;
  bool has_relays = true;
  std::uint32_t lane = 0;  // of the world
};

class RelaysTest : public ::testing::TestWithParam<Hosts> {
 protected:
  static int size() { return static_cast<int>(GetParam().of_rank.size()); }
  static WorldOptions options() {
    WorldOptions options;
    options.fabric.hosts = GetParam().of_rank;
    options.config.relays = GetParam().has_relays;
    options.config.spin_microseconds = 0;  // all share the cores of this one
    return options;
  }
};

// One rank's calls: sums of float32 tensors, by name.
class Caller {
 public:
  explicit Caller(Engine& engine, std::uint32_t lane = 0, std::uint32_t set = 0)
      : engine_(engine), lane_(lane), set_(set) {}

  OperationPtr begin(const std::string& name, float& value) {
    Request sum = request(Collective::kAllreduce, name, DataType::kFloat32, {1}, &value);
    sum.is_deferrable = true;
    sum.lane = lane_;
    sum.process_set = set_;
    return submit_request(engine_, std::move(sum));
  }
  Status wait(const OperationPtr& operation) { return engine_.wait(operation); }

  // All names at once. Returns what came of it, and fails the test if the sums are wrong.
  Status step(const std::vector<std::string>& names, int size, float share) {
    std::vector<float> values(names.size(), share);
    std::vector<OperationPtr> operations;
    for (std::size_t i = 0; i < names.size(); ++i) operations.push_back(begin(names[i], values[i]));
    Status worst;
    for (const OperationPtr& operation : operations) {
      if (Status status = wait(operation); !status.ok()) worst = status;
    }
    for (const float value : values) {
      if (!worst.ok()) break;
      EXPECT_EQ(value, share * static_cast<float>(size));
    }
    return worst;
  }
  void learn(const std::vector<std::string>& names, int size) {
    for (int step = 0; step < kLearned; ++step) {
      const Status status = this->step(names, size, static_cast<float>(step));
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }

 private:
  Engine& engine_;
  std::uint32_t lane_;
  std::uint32_t set_;
};

const std::vector<std::string> kNames{"a", "b", "c", "d", "e"};

TEST_P(RelaysTest, StepsGoOn) {
  const Watchdog watchdog("steps");
  World world(size(), options());
  world.run([](Engine& engine) {
    Caller caller(engine, GetParam().lane);
    for (int round = 0; round < 5; ++round) caller.learn(kNames, size());
  });
}

TEST_P(RelaysTest, NewNamesAreLearned) {
  const Watchdog watchdog("new names");
  World world(size(), options());
  world.run([](Engine& engine) {
    Caller caller(engine, GetParam().lane);
    caller.learn({"a", "b"}, size());
    caller.learn({"b", "c", "d"}, size());
    caller.learn({"a"}, size());
  });
}

// It has begun a group, and then does not call for long: what others wait for comes all the same.
TEST_P(RelaysTest, ARankBusyElsewhereKeepsNobodyWaiting) {
  const Watchdog watchdog("busy elsewhere");
  World world(size(), options());
  for (int busy = 0; busy < size(); ++busy) {
    std::latch others_are_done(size() - 1);
    world.run([&](Engine& engine) {
      Caller caller(engine, GetParam().lane);
      caller.learn(kNames, size());
      float first = 1;
      const OperationPtr operation = caller.begin("a", first);
      if (engine.rank() == busy) others_are_done.wait();
      EXPECT_TRUE(caller.wait(operation).ok());
      EXPECT_EQ(first, static_cast<float>(size()));
      if (engine.rank() != busy) others_are_done.count_down();
      EXPECT_TRUE(caller.step({"b", "c", "d", "e"}, size(), 2).ok());
    });
  }
}

TEST_P(RelaysTest, ErrorsReachAllAndStepsGoOn) {
  const Watchdog watchdog("errors");
  World world(size(), options());
  for (int wrong = 0; wrong < size(); ++wrong) {
    world.run([&](Engine& engine) {
      Caller caller(engine, GetParam().lane);
      caller.learn(kNames, size());
      std::vector<std::int64_t> integers(1);
      float value = 1;
      const bool is_wrong = engine.rank() == wrong;
      Request sum = is_wrong ? request(Collective::kAllreduce, "c", DataType::kInt64, {1}, integers.data())
                             : request(Collective::kAllreduce, "c", DataType::kFloat32, {1}, &value);
      sum.lane = GetParam().lane;
      const OperationPtr operation = submit_request(engine, std::move(sum));
      EXPECT_TRUE(caller.step({"a", "b"}, size(), 3).ok());
      const Status status = caller.wait(operation);
      EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
      EXPECT_NE(status.message().find("Ranks disagree about 'c'"), std::string::npos) << status.message();
    });
  }
}

TEST_P(RelaysTest, RanksJoin) {
  const Watchdog watchdog("join");
  World world(size(), options());
  for (int epoch = 0; epoch < 2; ++epoch) {
    world.run([&](Engine& engine) {
      Caller caller(engine, GetParam().lane);
      caller.learn(kNames, size());
      for (int step = 0; step < engine.rank(); ++step) {  // the others have joined: their share is nothing
        EXPECT_TRUE(caller.step(kNames, size() - step - 1, 1).ok());
      }
      const OperationPtr joined = submit_request(engine, bare(Collective::kJoin));
      EXPECT_TRUE(engine.wait(joined).ok());
      EXPECT_EQ(joined->value(), size() - 1);
      caller.learn(kNames, size());
    });
  }
}

const std::vector<Hosts> kHosts{
    {"TwoAndTwo", {"x", "x", "y", "y"}},
    {"OneAndTwo", {"x", "y", "y"}},
    {"Mixed", {"x", "y", "x", "z", "y"}},
    {"WithoutRelays", {"x", "x", "y"}, false},
    {"SecondLane", {"x", "y", "x", "y", "z", "x", "y", "z", "w"}, true, 1},
};

INSTANTIATE_TEST_SUITE_P(Hosts, RelaysTest, ::testing::ValuesIn(kHosts),
                         [](const auto& hosts) { return hosts.param.name; });

// More hosts than the first may have below it: the log crosses another one on its way.
TEST(RelaysBetweenManyHosts, GatherAndPassOn) {
  const Watchdog watchdog("many hosts");
  constexpr int kHosts = 34;
  WorldOptions options;
  for (int host = 0; host < kHosts; ++host) options.fabric.hosts.push_back(std::to_string(host));
  options.fabric.ring_bytes = 4096;
  options.config.spin_microseconds = 0;
  World world(kHosts, options);
  world.run([](Engine& engine) {
    Caller caller(engine);
    caller.learn(kNames, kHosts);
    if (engine.rank() == kHosts - 1) {
      const OperationPtr joined = submit_request(engine, bare(Collective::kJoin));
      EXPECT_TRUE(engine.wait(joined).ok());
    } else {
      EXPECT_TRUE(caller.step(kNames, kHosts - 1, 1).ok());
      EXPECT_TRUE(engine.wait(submit_request(engine, bare(Collective::kJoin))).ok());
    }
    EXPECT_TRUE(caller.step(kNames, kHosts, 2).ok());
  });
}

// Sets of nine ranks on three hosts, in a world with one rank more.
class RelaysInASet : public ::testing::Test {
 protected:
  static constexpr int kMembers = 9;
  static WorldOptions options() {
    WorldOptions options;
    options.fabric.hosts = {"x", "x", "x", "y", "y", "y", "z", "z", "z", "z"};
    options.config.spin_microseconds = 0;
    return options;
  }
  const Watchdog watchdog_{"relays in a set"};
  World world_{kMembers + 1, options()};
};

// Some ranks have reported what the others have not: the relays have gathered it when the set ends.
TEST_F(RelaysInASet, EndWithIt) {
  world_.run([](Engine& engine) {
    for (int round = 0; round < 3; ++round) {
      const std::uint32_t set = testing::add_set(engine, {0, 1, 2, 3, 4, 5, 6, 7, 8});
      Caller caller(engine, 0, set);
      float value = 1;
      OperationPtr pending;
      if (engine.rank() < kMembers) {
        caller.learn(kNames, kMembers);
        if (engine.rank() % 2 == 1) pending = caller.begin("a", value);
      }
      const auto removed = submit_request(engine, bare(Collective::kRemoveProcessSet, {set}));
      EXPECT_TRUE(engine.wait(removed).ok());
      if (pending == nullptr) continue;
      const Status status = caller.wait(pending);
      EXPECT_EQ(status.kind(), ErrorKind::kAborted) << status.message();
      EXPECT_NE(status.message().find("was removed"), std::string::npos) << status.message();
    }
  });
}

// A member leaves the world, be it a relay or not: all others have what was agreed on before, and nobody waits.
TEST_F(RelaysInASet, TellAllThatAMemberHasLeft) {
  constexpr int kLeaving = 3;  // the relay of ranks 3 to 5
  std::latch all_have_learned(kMembers);
  world_.run([&](Engine& engine) {
    const std::uint32_t set = testing::add_set(engine, {0, 1, 2, 3, 4, 5, 6, 7, 8});
    if (engine.rank() == kMembers) return;
    Caller caller(engine, 0, set);
    caller.learn(kNames, kMembers);
    if (engine.rank() == kLeaving) {
      all_have_learned.arrive_and_wait();
      engine.shutdown();
      return;
    }
    all_have_learned.arrive_and_wait();
    const Status status = caller.step(kNames, kMembers, 1);
    EXPECT_EQ(status.kind(), ErrorKind::kAborted) << status.message();
    EXPECT_NE(status.message().find("rank 3 "), std::string::npos) << status.message();
  });
}

}  // namespace
}  // namespace ciranda
