// Several hosts: what ranks report is gathered by relays, and groups of names go by number; results and errors are
// what they are without.
#include <gtest/gtest.h>

#include <latch>
#include <string>
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
  explicit Caller(Engine& engine) : engine_(engine) {}

  OperationPtr begin(const std::string& name, float& value) {
    Request sum = request(Collective::kAllreduce, name, DataType::kFloat32, {1}, &value);
    sum.is_deferrable = true;
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
};

const std::vector<std::string> kNames{"a", "b", "c", "d", "e"};

TEST_P(RelaysTest, StepsGoOn) {
  const Watchdog watchdog("steps");
  World world(size(), options());
  world.run([](Engine& engine) {
    Caller caller(engine);
    for (int round = 0; round < 5; ++round) caller.learn(kNames, size());
  });
}

TEST_P(RelaysTest, NewNamesAreLearned) {
  const Watchdog watchdog("new names");
  World world(size(), options());
  world.run([](Engine& engine) {
    Caller caller(engine);
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
      Caller caller(engine);
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
      Caller caller(engine);
      caller.learn(kNames, size());
      std::vector<std::int64_t> integers(1);
      float value = 1;
      const bool is_wrong = engine.rank() == wrong;
      const Request sum = is_wrong ? request(Collective::kAllreduce, "c", DataType::kInt64, {1}, integers.data())
                                   : request(Collective::kAllreduce, "c", DataType::kFloat32, {1}, &value);
      const OperationPtr operation = submit_request(engine, sum);
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
      Caller caller(engine);
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
};

INSTANTIATE_TEST_SUITE_P(Hosts, RelaysTest, ::testing::ValuesIn(kHosts),
                         [](const auto& hosts) { return hosts.param.name; });

}  // namespace
}  // namespace ciranda
