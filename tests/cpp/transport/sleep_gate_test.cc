// Whoever sleeps is woken by the bell always, and by the sockets while the gate is open, however the calls before went.
#include "transport/sleep_gate.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

namespace ciranda {
namespace {

class SleepGateTest : public ::testing::Test {
 protected:
  SleepGateTest() : bell_(Bell::create().value()), socket_(Bell::create().value()), loop_(EventLoop::create().value()) {
    EXPECT_TRUE(loop_.add(socket_.fd(), EPOLLIN, 0).ok());
    gate_ = SleepGate::create(bell_.fd(), loop_.fd()).value();
  }

  // Calls one after the other until the sleeper lingers.
  void call_until_it_lingers() const {
    while (!gate_->lingers()) {
      gate_->shut();
      gate_->open(false);
    }
  }

  bool is_woken(std::chrono::milliseconds at_most) const { return gate_->sleep(at_most); }

  Bell bell_;
  Bell socket_;  // anything that becomes readable
  EventLoop loop_;
  std::unique_ptr<SleepGate> gate_;
};

TEST_F(SleepGateTest, SocketsWakeWhileItIsOpenAndTheBellAlways) {
  socket_.ring();
  EXPECT_FALSE(is_woken(std::chrono::milliseconds(0)));
  gate_->open(true);
  EXPECT_TRUE(is_woken(std::chrono::milliseconds(0)));
  gate_->shut();
  EXPECT_FALSE(is_woken(std::chrono::milliseconds(0)));
  bell_.ring();
  EXPECT_TRUE(gate_->sleep(std::nullopt));
}

TEST_F(SleepGateTest, WhoLingersIsWokenWhenTheCallsHaveEnded) {
  for (int i = 0; i < 3; ++i) {
    std::thread sleeper([this] { EXPECT_TRUE(gate_->sleep(std::nullopt)); });
    call_until_it_lingers();
    gate_->shut();
    gate_->open(false);  // lets nothing through as long as it lingers
    socket_.ring();
    sleeper.join();
    EXPECT_FALSE(gate_->lingers());
    socket_.drain();
  }
}

// It lingers still, then. Else it has only found that the calls have ended; by chance at the same moment, if not
// always.
TEST_F(SleepGateTest, WhoLingersIsWokenAtOnceByWhatIsAwaited) {
  constexpr int kTries = 20;
  bool lingers = false;
  for (int i = 0; i < kTries && !lingers; ++i) {
    std::thread sleeper([this] { EXPECT_TRUE(gate_->sleep(std::nullopt)); });
    call_until_it_lingers();
    gate_->shut();
    socket_.ring();
    gate_->open(true);
    sleeper.join();
    lingers = gate_->lingers();
    socket_.drain();
  }
  EXPECT_TRUE(lingers);
}

TEST_F(SleepGateTest, WhoLingersHearsTheBellAndKeepsTheTime) {
  std::thread sleeper([this] { EXPECT_TRUE(gate_->sleep(std::nullopt)); });
  call_until_it_lingers();
  gate_->shut();
  socket_.ring();  // while it is shut this is nothing to the sleeper
  bell_.ring();
  sleeper.join();
  bell_.drain();
  constexpr std::chrono::milliseconds kTime{10};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(is_woken(kTime));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kTime);
}

}  // namespace
}  // namespace ciranda
