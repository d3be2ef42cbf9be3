// Waits: that a thread which begins to wait while another holds the progress lock is seen by the one that holds it, and
// what calls that are waited for leave to the background thread.
#include "progress/waits.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "engine/engine.hpp"
#include "engine/mesh_around.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

using testing::MeshAround;
using testing::request;
using testing::Watchdog;

TEST(Waits, AreHeededUntilAnotherBegins) {
  Waits waits;
  EXPECT_TRUE(waits.are_noticed());
  {
    const Waiting first(waits);
    EXPECT_FALSE(waits.are_noticed());
    waits.notice_all();
    EXPECT_TRUE(waits.are_noticed());
    const Waiting second(waits);
    EXPECT_FALSE(waits.are_noticed());
  }
  EXPECT_FALSE(waits.are_any());
  EXPECT_FALSE(waits.are_noticed()) << "nobody has looked since";
}

// Two ranks, of which the mesh of `rank` is a test's own.
template <typename OwnMesh>
class TwoRanks {
 public:
  TwoRanks(int rank, const Config& config) : fabric_(2) {
    auto own_mesh = std::make_unique<OwnMesh>(fabric_.take_mesh(rank));
    mesh_ = own_mesh.get();
    other_ = Engine::create(fabric_.take_mesh(1 - rank), config);
    engine_ = Engine::create(std::move(own_mesh), config);
  }
  TwoRanks(const TwoRanks&) = delete;
  TwoRanks& operator=(const TwoRanks&) = delete;
  ~TwoRanks() {
    std::thread leaving([this] { other_->shutdown(); });
    engine_->shutdown();
    leaving.join();
  }

  OwnMesh& mesh() { return *mesh_; }
  Engine& engine() { return *engine_; }
  Engine& other() { return *other_; }

 private:
  LoopbackFabric fabric_;
  OwnMesh* mesh_ = nullptr;
  std::unique_ptr<Engine> other_;
  std::unique_ptr<Engine> engine_;
};

// A mesh at which whoever arms its doorbell is held up once, and which tells who was the first after that to arm it for
// lazy news.
class HoldingMesh final : public MeshAround {
 public:
  using MeshAround::MeshAround;

  void arm(Sleeper sleeper) override {
    MeshAround::arm(sleeper);
    if (sleeper == Sleeper::kAwaits) {
      auto nobody = std::thread::id();
      awaits_.compare_exchange_strong(nobody, std::this_thread::get_id());
      return;
    }
    auto asked = State::kAsked;
    if (state_.compare_exchange_strong(asked, State::kHolds)) state_.wait(State::kHolds);
  }

  // Returns once a thread that has seen nobody wait is held up, with the progress lock.
  void hold() {
    state_ = State::kAsked;
    kick();  // once: what is kicked twice looks again by itself
    while (state_ != State::kHolds) std::this_thread::yield();
    awaits_ = std::thread::id();
  }
  void let_go() {
    state_ = State::kFree;
    state_.notify_all();
  }
  std::thread::id who_awaits() const { return awaits_; }

 private:
  enum class State : std::uint8_t { kFree, kAsked, kHolds };
  std::atomic<State> state_{State::kFree};
  std::atomic<std::thread::id> awaits_{};
};

// Else the doorbell stays armed as if nobody waited, and what is told lazily wakes nobody: the wait might never end.
TEST(Waits, ThatBeginWhileAnotherThreadArmsAreSeenByIt) {
  const Watchdog watchdog("a wait that nobody has seen");
  Config config;
  config.spin_microseconds = 0;      // who does not get the lock soon sleeps
  config.stall_warning_seconds = 0;  // and nothing else wakes the engine
  config.stall_shutdown_seconds = 0;
  TwoRanks<HoldingMesh> ranks(1, config);
  HoldingMesh& mesh = ranks.mesh();
  float value = 1;
  const auto operation =
      submit_request(ranks.engine(), request(Collective::kAllreduce, "x", DataType::kFloat32, {1}, &value));
  mesh.hold();
  std::thread waiter([&] {
    // Asked before it sleeps, for a second at most.
    const auto asked = [&mesh] {
      mesh.let_go();
      return false;
    };
    EXPECT_TRUE(ranks.engine().wait(operation, asked).ok());
  });
  while (mesh.who_awaits() == std::thread::id()) std::this_thread::yield();
  EXPECT_NE(mesh.who_awaits(), waiter.get_id()) << "it had to wake and look for itself";
  float other = 2;
  auto missing = request(Collective::kAllreduce, "x", DataType::kFloat32, {1}, &other);
  EXPECT_TRUE(ranks.other().wait(submit_request(ranks.other(), std::move(missing))).ok());
  waiter.join();
}

// A mesh that tells how often a thread has begun to sleep, and whether it was to wake by itself; and that keeps kicks
// back, if it is asked to.
class SleepersMesh final : public MeshAround {
 public:
  using MeshAround::MeshAround;

  void sleep(std::optional<std::chrono::nanoseconds> at_most) override {
    wakes_by_itself_ = at_most.has_value();
    ++n_sleeps_;
    MeshAround::sleep(at_most);
  }
  void kick() override {
    if (!keeps_kicks_) MeshAround::kick();
  }
  void keep_kicks(bool keeps) { keeps_kicks_ = keeps; }

  // Whether the background thread is to wake by itself once it has been woken and sleeps again. Woken more than once:
  // it may just have been about to sleep, with what it knew before.
  bool wakes_by_itself_after_kicks() {
    for (int i = 0; i < 5; ++i) {
      const int before = n_sleeps_;
      kick();
      while (n_sleeps_ == before) std::this_thread::yield();
    }
    return wakes_by_itself_;
  }

 private:
  std::atomic<int> n_sleeps_{0};
  std::atomic<bool> wakes_by_itself_{false};
  std::atomic<bool> keeps_kicks_{false};
};

// Each call has a time at which it is told of as stalled. If the background thread forgot that of the last, it would
// have to be woken to hear of the next one's: in each call.
TEST(Waits, LeaveTheBackgroundThreadItsDeadline) {
  const Watchdog watchdog("deadlines of calls");
  Config config;
  config.stall_warning_seconds = 60;
  TwoRanks<SleepersMesh> ranks(0, config);
  SleepersMesh& mesh = ranks.mesh();
  EXPECT_FALSE(mesh.wakes_by_itself_after_kicks()) << "nothing has been called";
  float value = 1;
  const auto operation =
      submit_request(ranks.engine(), request(Collective::kAllreduce, "x", DataType::kFloat32, {1}, &value));
  EXPECT_TRUE(mesh.wakes_by_itself_after_kicks()) << "the other rank may never come";
  float missing = 2;
  const auto last =
      submit_request(ranks.other(), request(Collective::kAllreduce, "x", DataType::kFloat32, {1}, &missing));
  EXPECT_TRUE(ranks.engine().wait(operation).ok());
  EXPECT_TRUE(ranks.other().wait(last).ok());
  EXPECT_TRUE(mesh.wakes_by_itself_after_kicks()) << "it will once, for nothing";
}

// Nothing is due any more when it has the lock. If it went by that, it would be woken in each such call. In several
// worlds: what the other rank writes may wake it sooner.
TEST(Waits, LeaveTheBackgroundThreadADeadlineThatIsOverBeforeItWakes) {
  const Watchdog watchdog("deadlines of short calls");
  Config config;
  config.stall_warning_seconds = 60;
  for (int i = 0; i < 10; ++i) {
    TwoRanks<SleepersMesh> ranks(0, config);
    SleepersMesh& mesh = ranks.mesh();
    EXPECT_FALSE(mesh.wakes_by_itself_after_kicks()) << "nothing has been called";
    mesh.keep_kicks(true);
    float value = 1;
    float missing = 2;
    const auto operation =
        submit_request(ranks.engine(), request(Collective::kAllreduce, "x", DataType::kFloat32, {1}, &value));
    const auto last =
        submit_request(ranks.other(), request(Collective::kAllreduce, "x", DataType::kFloat32, {1}, &missing));
    EXPECT_TRUE(ranks.engine().wait(operation).ok());
    EXPECT_TRUE(ranks.other().wait(last).ok());
    mesh.keep_kicks(false);
    EXPECT_TRUE(mesh.wakes_by_itself_after_kicks());
  }
}

}  // namespace
}  // namespace ciranda
