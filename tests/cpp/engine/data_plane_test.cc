// Plans go to the backend of the memory where their tensors lie, and all backends are aborted when an entry is given
// up.
#include "execute/data_plane.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "call/output_memory.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

constexpr DeviceType kFakeDevice{200};
constexpr DeviceType kOtherDevice{201};

// What the backends of the two devices were asked for.
std::vector<std::string>& asked_of_backends() {
  static std::vector<std::string> what;
  return what;
}

// Is done at the first step, so it can be given up before.
class FakeCollective final : public RunningCollective {
 public:
  ~FakeCollective() override { asked_of_backends().emplace_back("destroy"); }
  Progress step() override { return Progress::kDone; }
  std::vector<int> awaited() const override { return {}; }
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(std::string name) : name_(std::move(name)) {}
  Started start(const Plan& plan) override {
    asked_of_backends().push_back("start " + name_ + ", " + std::to_string(plan.n_bytes) + " bytes " +
                                  to_string(plan.place));
    return {std::make_unique<FakeCollective>(), "fake algorithm"};
  }
  void abort() override { asked_of_backends().push_back("abort " + name_); }

 private:
  std::string name_;
};

constexpr std::array kFakeRows{
    BackendRow{.memory = kFakeDevice,
               .name = "fake",
               .make = [](Mesh&, const Config&, FindDevice*) -> std::unique_ptr<Backend> {
                 return std::make_unique<FakeBackend>("fake");
               }},
    BackendRow{.memory = DeviceType{202}, .name = "only staged"},
    BackendRow{.memory = kOtherDevice,
               .name = "other",
               .make = [](Mesh&, const Config&, FindDevice*) -> std::unique_ptr<Backend> {
                 return std::make_unique<FakeBackend>("other");
               }},
};

class DataPlaneTest : public ::testing::Test {
 protected:
  DataPlaneTest() { asked_of_backends().clear(); }

  // A sum of three numbers, all of this one rank, times 2.
  void enqueue(const Place& place) {
    auto request = std::make_unique<Request>();
    request->name = "sum";
    request->signature.collective = Collective::kAllreduce;
    request->signature.prescale = 2;
    request->signature.tensors = {{DataType::kFloat32, {3}}};
    auto* const bytes = reinterpret_cast<std::byte*>(values_.data());
    request->memory = {{bytes, bytes, place}};
    operations_.push_back(std::make_shared<Operation>());
    Submission submission{std::move(request), operations_.back()};
    submission.stages.note(Stage::kSubmitted);
    const Ticket ticket = in_flight_.add(std::move(submission));
    data_.enqueue({.requests = {{ticket, nullptr, nullptr}}});
  }
  bool step() {
    const Result<bool> stepped = data_.step();
    return stepped.ok() && stepped.value();
  }

  LoopbackFabric fabric_{1};
  std::unique_ptr<Mesh> mesh_ = fabric_.take_mesh(0);
  OutputMemory memory_;
  Recorder recorder_;
  Logger logger_{0, LogLevel::kWarning};
  Counters counters_{"", 0, 1};
  InFlight in_flight_{memory_, recorder_, counters_, nullptr};
  WayExpected expected_{{}, *mesh_};
  Unended unended_;
  Turns all_turns_;
  LaneTurns turns_{all_turns_, 0};
  DataPlane data_{*mesh_, in_flight_, {*mesh_, {}, kFakeRows}, {}, {expected_, turns_, unended_}, logger_};
  std::vector<std::shared_ptr<Operation>> operations_;
  std::array<float, 3> values_{1, 2, 3};
};

TEST_F(DataPlaneTest, APlanGoesToTheBackendOfItsMemory) {
  enqueue({});
  EXPECT_TRUE(step());
  EXPECT_TRUE(asked_of_backends().empty());
  EXPECT_EQ(values_, (std::array<float, 3>{2, 4, 6}));
  for (const DeviceType type : {kOtherDevice, kFakeDevice}) {
    enqueue({type, 3, nullptr});
    EXPECT_TRUE(step());
    EXPECT_FALSE(operations_.back()->is_done());
    EXPECT_TRUE(step());
    EXPECT_TRUE(operations_.back()->is_done());
  }
  EXPECT_EQ(asked_of_backends(), (std::vector<std::string>{"start other, 12 bytes on device 3 of type 201", "destroy",
                                                           "start fake, 12 bytes on device 3 of type 200", "destroy"}));
  EXPECT_EQ(values_, (std::array<float, 3>{2, 4, 6}));
}

// What a call can tell of the next is only what the next could do, too.
TEST_F(DataPlaneTest, ACallThatIsAlwaysStagedTellsNothingOfTheNext) {
  Request sum;
  sum.signature.collective = Collective::kAllreduce;
  sum.home = home_on(0);
  Request adasum = sum;
  adasum.signature.op = ReduceOp::kAdasum;
  Request on_host = sum;
  on_host.home = kStagedHome;
  WayExpected expected({}, *mesh_);
  expected.went(sum, 2, Way::kPeer);
  for (const Request& other : {adasum, on_host}) {
    expected.went(other, 2, Way::kStaged);
    EXPECT_EQ(expected.of(other, 2), Way::kStaged);
    EXPECT_EQ(expected.of(sum, 2), Way::kPeer);
  }
  expected.went(sum, 2, Way::kStaged);
  EXPECT_EQ(expected.of(sum, 2), Way::kStaged);
}

TEST_F(DataPlaneTest, ACallHasTheAlgorithmOfItsPlan) {
  enqueue({});
  while (step()) {
  }
  EXPECT_EQ(counters_.page().algorithms[0].n_calls, 0U) << "of one rank alone";
  for (int times = 0; times < 2; ++times) {
    enqueue({kFakeDevice, 0, nullptr});
    while (step()) {
    }
  }
  EXPECT_EQ(counters_.page().algorithms[0].n_calls, 2U);
  EXPECT_STREQ(reinterpret_cast<const char*>(counters_.page().algorithms[0].name), "fake algorithm");
}

TEST_F(DataPlaneTest, AnEntryThatIsGivenUpEndsAllBackends) {
  enqueue({});
  EXPECT_TRUE(step());
  enqueue({kFakeDevice, 0, nullptr});
  enqueue({});
  EXPECT_TRUE(step());
  asked_of_backends().clear();
  data_.give_up_from(2, Status::aborted("the last"));  // not what is running
  EXPECT_TRUE(asked_of_backends().empty());
  EXPECT_FALSE(operations_[1]->is_done());
  EXPECT_EQ(operations_[2]->status().message(), "the last");
  data_.give_up_from(1, Status::aborted("all"));
  EXPECT_EQ(asked_of_backends(), (std::vector<std::string>{"abort fake", "abort other", "destroy"}));
  EXPECT_EQ(operations_[1]->status().message(), "all");
}

}  // namespace
}  // namespace ciranda
