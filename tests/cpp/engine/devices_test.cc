// Tensors on a device: in whose order calls read and write them, beside whom they are combined, and that the host
// touches none. (Every collective, element type and op: conformance_test.cc and rows_conformance_test.cc.)
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <latch>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "call_of_one.hpp"
#include "engine/guarded.hpp"
#include "engine/homes.hpp"
#include "engine/sets.hpp"
#include "engine/watchdog.hpp"
#include "engine/worlds_test.hpp"

namespace ciranda {
namespace {

using testing::AtHome;
using testing::bare;
using testing::Guarded;
using testing::home;
using testing::Home;
using testing::Homes;
using testing::kLayouts;
using testing::Layout;
using testing::options_for;
using testing::paged_device;
using testing::paged_home;
using testing::PagedDevice;
using testing::PagedQueue;
using testing::request;
using testing::wait_at_home;
using testing::Watchdog;

using testing::World;
using testing::WorldOptions;

using Values = std::vector<std::int64_t>;

// A tensor of some integers, at home.
class DeviceTensor {
 public:
  explicit DeviceTensor(const Values& values)
      : n_(values.size()), memory_(std::as_bytes(std::span(values)), Guarded::kAligned) {}

  Request sum(const std::string& name) {
    return request(Collective::kAllreduce, name, DataType::kInt64, {static_cast<std::int64_t>(n_)}, memory_.data());
  }
  testing::CallOfOne call(std::string_view name, const Shape& shape) {
    testing::CallOfOne made({}, name, DataType::kInt64);
    made.tensor.shape = shape;
    made.tensor.memory = {memory_.data(), memory_.data()};
    return made;
  }
  Values values() const {
    Values values(n_);
    std::memcpy(values.data(), memory_.bytes().data(), n_ * sizeof(std::int64_t));
    return values;
  }
  // What a kernel sees of it.
  std::int64_t* in_kernel() { return reinterpret_cast<std::int64_t*>(paged_device().in_kernel(memory_.data())); }

 private:
  std::size_t n_;
  Guarded memory_;
};

PagedQueue& queue() { return *static_cast<PagedQueue*>(home().place.queue); }

WorldOptions on(Homes homes, Layout layout = Layout::kArena, int size = 2) {
  WorldOptions options = options_for(layout, size);
  options.homes = homes;
  return options;
}

// Until the device no longer uses the tensors, which it may when the call has failed.
void await_end(const Operation& operation) {
  while (!operation.has_ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Status make(Engine& engine, Request request) {
  const auto operation = submit_request(engine, std::move(request));
  Status status = wait_at_home(engine, operation);
  await_end(*operation);
  return status;
}

// --- nobody but the device

TEST(DevicesDeathTest, TheHostCannotReadTheirMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const AtHome at(paged_home(0));
  DeviceTensor tensor({1});
  EXPECT_DEATH(std::printf("%lld", static_cast<long long>(*reinterpret_cast<volatile std::int64_t*>(
                                       tensor.sum("").memory.front().output))),
               "");
}

// So the tests on devices notice a stage of the engine that looks at a tensor by itself.
TEST(DevicesDeathTest, ATensorThatIsTakenForTheHostsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto lie = [] {
    World world(2, on(Homes::kPaged));
    world.run([](Engine& engine) {
      DeviceTensor tensor({1});
      Request r = tensor.sum("lie");
      r.memory.front().place = {};
      (void)make(engine, std::move(r));
    });
  };
  EXPECT_DEATH(lie(), "");
}

// --- what is refused

TEST(DevicesTest, ACallOnSeveralDevicesIsRefusedAndTheTensorNamed) {
  World world(1, on(Homes::kPaged));
  world.run([](Engine& engine) {
    DeviceTensor tensor({1});
    Request r = tensor.sum("mixed");
    for (const Place& place : {home().place, Place{DeviceType{200}, 1, nullptr}}) {
      r.signature.tensors.push_back(r.signature.tensors.front());
      r.memory.push_back({r.memory.front().input, r.memory.front().output, place});
    }
    const Status status = make(engine, r);
    EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "allreduce 'mixed', tensor 2 of the group: it lies on device 1 of type 200, tensor 0 on device 0 of type "
              "200; the tensors of one call lie on one device, or in host memory.");
  });
}

TEST(DevicesTest, AGroupMayHaveTensorsInHostMemoryBesideThoseOnADevice) {
  World world(2, on(Homes::kPaged));
  world.run([](Engine& engine) {
    DeviceTensor tensor({1, 2});
    Values before{3, 4, 5};
    Values after{6};
    Request r = tensor.sum("beside");
    const auto add = [&r](Values& host, bool is_first) {
      const auto at = is_first ? 0 : static_cast<std::ptrdiff_t>(r.memory.size());
      auto* const bytes = reinterpret_cast<std::byte*>(host.data());
      const TensorSignature signature{DataType::kInt64, {static_cast<std::int64_t>(host.size())}};
      r.memory.insert(r.memory.begin() + at, {bytes, bytes, Place{}});
      r.signature.tensors.insert(r.signature.tensors.begin() + at, signature);
    };
    add(before, true);
    add(after, false);
    ASSERT_TRUE(make(engine, std::move(r)).ok());
    EXPECT_EQ(tensor.values(), (Values{2, 4}));
    EXPECT_EQ(before, (Values{6, 8, 10}));
    EXPECT_EQ(after, (Values{12}));
  });
}

TEST(DevicesTest, WhatHasNoBackendIsRefused) {
  World world(1, on(Homes::kPaged));
  world.run([](Engine& engine) {
    DeviceTensor tensor({1});
    Request r = tensor.sum("x");
    r.memory.front().place.type = DeviceType{77};
    const Status status = make(engine, std::move(r));
    EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "allreduce 'x': its tensors lie on device 0 of type 77, for which this build has no backend.");
    EXPECT_TRUE(make(engine, tensor.sum("x")).ok()) << "the name is free";
  });
}

// --- in the order of the queue

// The input is that of the call's place in the queue; and while it is not there, other lanes go on.
TEST(DevicesTest, ACallReadsWhatItsQueueHasMadeBeforeAndHoldsUpNobodyMeanwhile) {
  const Watchdog watchdog("a kernel that takes its time");
  std::latch may_end(2);  // once both ranks have looked
  WorldOptions options = on(Homes::kPaged);
  options.config.num_lanes = 2;  // from the start: lane 0 makes no other while it waits
  World world(2, options);
  world.run([&](Engine& engine) {
    DeviceTensor tensor({0});
    queue().launch([&, to = tensor.in_kernel()] {
      may_end.wait();
      *to = engine.rank() + 1;
    });
    const auto operation = submit_request(engine, tensor.sum("late"));
    std::int64_t value = 1;
    Request other = request(Collective::kAllreduce, "other", DataType::kInt64, {1}, &value);
    other.memory.front().place = {};
    other.lane = 1;
    ASSERT_TRUE(make(engine, std::move(other)).ok());
    EXPECT_EQ(value, 2);
    EXPECT_FALSE(operation->is_done());
    may_end.count_down();
    ASSERT_TRUE(wait_at_home(engine, operation).ok());
    EXPECT_EQ(tensor.values(), Values{3});
  });
}

// The call is done once the copy of its result is in a queue of the device; the caller's own queue goes on meanwhile,
// and sees the result behind order().
TEST(DevicesTest, AQueueGoesOnDuringACallAndSeesTheResultOnceOrdered) {
  const Watchdog watchdog("a queue that goes on");
  World world(2, on(Homes::kPaged));
  world.run([&](Engine& engine) {
    DeviceTensor tensor({engine.rank() + 1});
    DeviceTensor other({7});
    std::latch may_begin(1);
    std::latch has_gone_on(1);
    queue().launch([&] { may_begin.wait(); });  // before the input is read: the call cannot be done yet
    const auto operation = submit_request(engine, tensor.sum("sum"));
    queue().launch([&, to = other.in_kernel()] {
      *to += 1;
      has_gone_on.count_down();
    });
    EXPECT_FALSE(operation->is_done());
    may_begin.count_down();
    has_gone_on.wait();
    ASSERT_TRUE(engine.wait(operation).ok());
    ASSERT_TRUE(operation->order(home().place).ok());
    queue().launch([to = tensor.in_kernel()] { *to *= 10; });
    EXPECT_EQ(tensor.values(), Values{30});
    EXPECT_EQ(other.values(), Values{8});
    EXPECT_TRUE(operation->has_ended());
  });
}

// Whichever queue the tensor was made in.
TEST(DevicesTest, AnyQueueOfTheDeviceCanBeOrderedBehindACall) {
  const Watchdog watchdog("another queue");
  World world(2, on(Homes::kPaged));
  world.run([&](Engine& engine) {
    PagedQueue another;
    const Place elsewhere{PagedDevice::kType, 0, &another};
    DeviceTensor tensor({engine.rank() + 1});
    const auto operation = submit_request(engine, tensor.sum("sum"));
    ASSERT_TRUE(engine.wait(operation).ok());
    ASSERT_TRUE(operation->order(elsewhere).ok());
    another.launch([to = tensor.in_kernel()] { *to *= 10; });
    another.synchronize();
    EXPECT_EQ(tensor.values(), Values{30});
  });
}

// A kernel of one queue may need the result of another queue's call, in another lane.
TEST(DevicesTest, CallsOfOneQueueDoNotWaitBehindThoseOfAnother) {
  const Watchdog watchdog("two queues");
  WorldOptions options = on(Homes::kPaged);
  options.config.num_lanes = 2;
  World world(2, options);
  world.run([&](Engine& engine) {
    PagedQueue another;
    DeviceTensor first({1});
    DeviceTensor second({2});
    std::latch second_is_done(1);
    queue().launch([&] { second_is_done.wait(); });
    const auto waits = submit_request(engine, first.sum("first"));
    Request r = second.sum("second");
    r.lane = 1;
    r.memory.front().place.queue = &another;
    const auto in_another = submit_request(engine, std::move(r));
    ASSERT_TRUE(engine.wait(in_another).ok());
    second_is_done.count_down();
    ASSERT_TRUE(wait_at_home(engine, waits).ok());
    EXPECT_EQ(first.values(), Values{2});
    ASSERT_TRUE(wait_at_home(engine, in_another).ok());  // its tensor is freed in this queue
  });
}

// Each makes its input of the result before; the host waits for no kernel.
TEST(DevicesTest, CallsOfAQueueFollowEachOther) {
  World world(2, on(Homes::kPaged));
  world.run([](Engine& engine) {
    DeviceTensor tensor({1});
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(make(engine, tensor.sum("x" + std::to_string(i % 3))).ok());
      queue().launch([to = tensor.in_kernel()] { *to += 1; });
    }
    std::int64_t expected = 1;
    for (int i = 0; i < 20; ++i) expected = 2 * expected + 1;
    EXPECT_EQ(tensor.values(), Values{expected});
  });
}

// Every thread of the engine sleeps by then.
TEST(DevicesTest, AQueueWakesWhoeverWaitsForIt) {
  const Watchdog watchdog("a wake-up from the device");
  WorldOptions options = on(Homes::kPaged);
  options.config.spin_microseconds = 0;
  World world(2, options);
  world.run([](Engine& engine) {
    DeviceTensor tensor({1});
    for (int i = 0; i < 20; ++i) {
      queue().launch([] {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
        while (std::chrono::steady_clock::now() < end) {
        }
      });
      ASSERT_TRUE(make(engine, tensor.sum("x")).ok());
    }
    EXPECT_EQ(tensor.values(), Values{1 << 20});
  });
}

TEST(DevicesTest, CallsAreCompletedInTheOrderOfTheirQueue) {
  const Watchdog watchdog("calls in order");
  World world(2, on(Homes::kPaged));
  world.run([](Engine& engine) {
    constexpr std::size_t kCalls = 30;
    std::vector<DeviceTensor> tensors;
    for (std::size_t i = 0; i < kCalls; ++i) tensors.emplace_back(Values(1 + i % 7 * 1000));
    std::latch may_begin(1);
    queue().launch([&] { may_begin.wait(); });
    std::vector<std::size_t> completed;
    std::latch are_completed(kCalls);  // who waits for a call may go on before it is called back for
    std::vector<Engine::OperationPtr> operations;
    for (std::size_t i = 0; i < kCalls; ++i) {
      queue().launch([to = tensors[i].in_kernel(), i] { *to = static_cast<std::int64_t>(i); });
      Request r = tensors[i].sum(std::to_string(i));
      r.calls_back_directly = true;
      operations.push_back(submit_request(engine, std::move(r), [&completed, &are_completed, i](const Operation&) {
        completed.push_back(i);
        are_completed.count_down();
      }));
    }
    may_begin.count_down();
    for (const auto& operation : operations) ASSERT_TRUE(wait_at_home(engine, operation).ok());
    are_completed.wait();
    std::vector<std::size_t> in_order(kCalls);
    std::iota(in_order.begin(), in_order.end(), 0);
    EXPECT_EQ(completed, in_order);
    for (std::size_t i = 0; i < kCalls; ++i) EXPECT_EQ(tensors[i].values().front(), 2 * static_cast<std::int64_t>(i));
  });
}

// --- beside others

class DevicesInWorlds : public ::testing::TestWithParam<std::tuple<Layout, Homes>> {
 protected:
  static constexpr int kSize = 3;
  WorldOptions options() const { return on(std::get<1>(GetParam()), std::get<0>(GetParam()), kSize); }
};

// Whatever other ranks do; awaited and not; so that direct rounds are opened for the name, and closed.
TEST_P(DevicesInWorlds, CallsOfOneNameAreNowOnTheDeviceAndNowInHostMemory) {
  const Watchdog watchdog("alternating calls");
  World world(kSize, options());
  world.run([](Engine& engine) {
    const Home own = home();
    for (int i = 0; i < 60; ++i) {
      const bool is_at_home = (i / 4 + engine.rank() * (i / 20)) % 2 == 1;  // all the same for a while
      const AtHome at(is_at_home ? own : Home{});
      DeviceTensor tensor({i, engine.rank()});
      const Shape shape{2};
      const Values expected{kSize * i, 3};
      const std::string name = i % 7 == 0 ? "y" : "x";
      if (i % 3 == 2 && home().device == nullptr) {
        const auto repeated = repeat(engine, tensor.call(name, shape));
        if (!repeated) {
          ASSERT_TRUE(make(engine, make_request(tensor.call(name, shape))).ok());
        } else if (*repeated != nullptr) {
          ASSERT_TRUE(wait_at_home(engine, *repeated).ok());
        }
      } else {
        Request r = tensor.sum(name);
        r.is_awaited = i % 5 != 0;
        const Status status = make(engine, std::move(r));
        ASSERT_TRUE(status.ok()) << status.message();
      }
      ASSERT_EQ(tensor.values(), expected) << i;
    }
  });
}

// Many in flight are carried out together, those of a rank that lie elsewhere too.
TEST_P(DevicesInWorlds, CallsThatTravelTogetherLieInSeveralPlaces) {
  const Watchdog watchdog("calls in several places");
  World world(kSize, options());
  world.run([](Engine& engine) {
    const Home own = home();
    for (int round = 0; round < 3; ++round) {
      std::vector<std::pair<Home, DeviceTensor>> tensors;
      for (int i = 0; i < 40; ++i) {
        const Home where = (i + engine.rank()) % 3 == 0 ? Home{} : own;
        const AtHome at(where);
        tensors.emplace_back(where, DeviceTensor(Values(static_cast<std::size_t>(1 + i * 17), i)));
      }
      std::vector<Engine::OperationPtr> operations;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const AtHome at(tensors[i].first);
        Request r = tensors[i].second.sum(std::to_string(i));
        r.is_deferrable = true;
        operations.push_back(submit_request(engine, std::move(r)));
      }
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        ASSERT_TRUE(wait_at_home(engine, operations[i]).ok());
        EXPECT_EQ(tensors[i].second.values(), Values(1 + i * 17, kSize * static_cast<std::int64_t>(i)));
      }
    }
  });
}

// What takes several phases, and what is compared afterwards.
TEST_P(DevicesInWorlds, AdasumAveragesByWeightAndChecksOfConsistency) {
  const Watchdog watchdog("phases");
  WorldOptions checked = options();
  checked.config.check_consistency = 1;
  World world(kSize, checked);
  world.run([](Engine& engine) {
    for (int round = 0; round < 3; ++round) {
      const std::vector<double> mine(1000, engine.rank() == 0 ? 4 : 4.0 * engine.rank());
      Guarded tensor(std::as_bytes(std::span(mine)), Guarded::kAligned);
      const auto first = [&tensor] {
        double value = 0;
        std::memcpy(&value, tensor.bytes().data(), sizeof value);
        return value;
      };
      Request mean = request(Collective::kAllreduce, "mean", DataType::kFloat64, {1000}, tensor.data());
      mean.signature.op = ReduceOp::kAverage;
      mean.signature.is_weighted = true;
      mean.weight = engine.rank() == 2 ? 2 : 1;
      ASSERT_TRUE(make(engine, std::move(mean)).ok());
      EXPECT_EQ(first(), (4 + 4 + 2 * 8) / 4.0);
      Request adasum = request(Collective::kAllreduce, "adasum", DataType::kFloat64, {1000}, tensor.data());
      adasum.signature.op = ReduceOp::kAdasum;
      ASSERT_TRUE(make(engine, std::move(adasum)).ok());
      EXPECT_DOUBLE_EQ(first(), 6) << "of equal summands, one of them";
      EXPECT_TRUE(tensor.is_intact());
    }
  });
}

// A rank that has joined stands in, with memory of its own.
TEST_P(DevicesInWorlds, GoOnWhileARankHasJoined) {
  const Watchdog watchdog("joined");
  World world(kSize, options());
  world.run([](Engine& engine) {
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 3 + (engine.rank() + round) % kSize; ++i) {
        DeviceTensor sum({1, 1});
        ASSERT_TRUE(make(engine, sum.sum("sum" + std::to_string(i))).ok());
        const auto n_present = static_cast<std::int64_t>(std::min(kSize, kSize + 2 - std::max(i, 2)));
        EXPECT_EQ(sum.values(), Values(2, n_present));
        DeviceTensor rows({engine.rank()});
        Request gather = rows.sum("rows" + std::to_string(i));
        gather.signature.collective = Collective::kAllgather;
        gather.memory.front().output = nullptr;
        const auto gathered = submit_request(engine, std::move(gather));
        ASSERT_TRUE(wait_at_home(engine, gathered).ok());
        const OutputBuffer& output = gathered->outputs().front();
        EXPECT_EQ(output.place.type, home().place.type);
        EXPECT_EQ(output.shape, Shape{n_present});
        EXPECT_EQ(testing::contents(output).size(), static_cast<std::size_t>(n_present) * sizeof(std::int64_t));
      }
      const auto joined = submit_request(engine, bare(Collective::kJoin));
      ASSERT_TRUE(wait_at_home(engine, joined).ok());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, DevicesInWorlds,
                         ::testing::Combine(::testing::ValuesIn(kLayouts),
                                            ::testing::Values(Homes::kPaged, Homes::kMixed)),
                         [](const auto& test) {
                           return to_string(std::get<0>(test.param)) + testing::to_string(std::get<1>(test.param));
                         });

// --- what fails

using Fault = PagedDevice::Fault;

class Faulty {
 public:
  explicit Faulty(Fault fault) { paged_device().fail(fault); }
  ~Faulty() { paged_device().fail(Fault::kNone); }
  Faulty(const Faulty&) = delete;
  Faulty& operator=(const Faulty&) = delete;
};

// Rank 0 has its tensor on the device, rank 1 in host memory.
void expect_broken(Fault fault, const char* why) {
  const Watchdog watchdog(why);
  World world(2, on(Homes::kMixed));
  std::latch is_over(2);
  world.run([&](Engine& engine) {
    DeviceTensor tensor({1});
    std::optional<Faulty> faulty;
    if (engine.rank() == 0) faulty.emplace(fault);
    Status status = engine.wait(submit_request(engine, tensor.sum("x")));
    // A copy to the device fails when it is its turn, which may be when the call is done already.
    while (status.ok()) status = engine.wait(submit_request(engine, bare(Collective::kBarrier)));
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
    is_over.arrive_and_wait();
  });
}

TEST(DevicesTest, ACopyThatFailsBreaksTheWorldWithItsReason) {
  expect_broken(Fault::kFetch, "the copy of 8 bytes failed");
  expect_broken(Fault::kPut, "the copy of 8 bytes failed");
  expect_broken(Fault::kQueuePut, "the copy of 8 bytes was refused");
}

// On the rank that lacks it, by name; the world goes on.
TEST(DevicesTest, AResultWithoutMemoryFailsAlone) {
  const Watchdog watchdog("no memory");
  World world(2, on(Homes::kMixed));
  std::latch is_over(2);
  world.run([&](Engine& engine) {
    DeviceTensor tensor({engine.rank()});
    const auto gather = [&] {
      Request r = tensor.sum("rows");
      r.signature.collective = Collective::kAllgather;
      r.memory.front().output = nullptr;
      return make(engine, std::move(r));
    };
    {
      std::optional<Faulty> faulty;
      if (engine.rank() == 0) faulty.emplace(Fault::kMemory);
      const Status status = gather();
      EXPECT_EQ(status.ok(), engine.rank() == 1);
      if (!status.ok()) {
        EXPECT_EQ(status.message(), "there is no memory on device 0 of type 200 for a result of 16 bytes");
      }
      is_over.arrive_and_wait();
    }
    EXPECT_TRUE(gather().ok());
  });
}

// If the program went on, its next call would meet the one that other ranks have made.
TEST(DevicesTest, ACallThatCannotBeOrderedBreaksTheWorldAndNamesTheRank) {
  World world(2, on(Homes::kPaged));
  std::barrier both(2);
  world.run([&](Engine& engine) {
    DeviceTensor tensor({1});
    both.arrive_and_wait();  // the device of both is the one that fails
    if (engine.rank() == 1) {
      const Faulty faulty(Fault::kRecord);
      const auto operation = submit_request(engine, tensor.sum("x"));
      EXPECT_TRUE(operation->is_refused());
      EXPECT_EQ(operation->status().message(), "allreduce 'x': the device records no event");
    }
    both.arrive_and_wait();
    const Status status = make(engine, tensor.sum("x"));
    EXPECT_TRUE(status.message().starts_with("rank 1 (host ")) << status.message();
    EXPECT_TRUE(status.message().ends_with("): allreduce 'x': the device records no event")) << status.message();
  });
}

// --- devices that do not come to a call

class DevicesThatWait : public ::testing::TestWithParam<Homes> {};

// On all ranks, or on one while the other waits for it in the collective.
TEST_P(DevicesThatWait, AreNamedAndEndTheWorldAtTheLimit) {
  const Watchdog watchdog("a device that does not come");
  WorldOptions options = on(GetParam());
  testing::end_stalls_soon(options.config);
  std::latch may_end(1);
  std::latch is_over(2);
  {
    World world(2, options);
    world.run([&](Engine& engine) {
      DeviceTensor tensor({engine.rank()});
      if (home().device != nullptr) queue().launch([&] { may_end.wait(); });
      const auto operation = submit_request(engine, tensor.sum("never"));
      const Status status = engine.wait(operation);
      EXPECT_EQ(status.kind(), ErrorKind::kTimeout) << status.message();
      EXPECT_NE(status.message().find("allreduce 'never'"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("on device 0 of type 200"), std::string::npos) << status.message();
      is_over.arrive_and_wait();
      if (engine.rank() == 0) may_end.count_down();
      may_end.wait();
      static_cast<void>(tensor.values());  // once its queue has come to the call, which copies from it
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, DevicesThatWait, ::testing::Values(Homes::kPaged, Homes::kMixed),
                         [](const auto& test) { return testing::to_string(test.param); });

// Its copies end when there is no engine any more.
TEST(DevicesTest, AWorldEndsWhileAQueueStandsStill) {
  const Watchdog watchdog("the end");
  const AtHome at(paged_home(0));
  std::latch may_end(1);
  DeviceTensor tensor({1});
  {
    World world(1, on(Homes::kPaged));
    queue().launch([&] { may_end.wait(); });
    const auto operation = submit_request(world.engine(0), tensor.sum("x"));
    world.engine(0).shutdown();
    EXPECT_EQ(operation->status().kind(), ErrorKind::kAborted);
  }
  may_end.count_down();
  EXPECT_EQ(tensor.values(), Values{1});
}

TEST(DevicesTest, ACallThatFailsWhileItsResultIsUnderWayHasNotEnded) {
  const Watchdog watchdog("the end");
  const AtHome at(paged_home(0));
  DeviceTensor tensor({1});
  std::optional<Faulty> fault(Fault::kHeldPut);
  World world(1, on(Homes::kPaged));
  const auto operation = submit_request(world.engine(0), tensor.sum("x"));
  while (!paged_device().holds_put()) world.engine(0).poll(operation);
  world.engine(0).shutdown();
  EXPECT_EQ(operation->status().kind(), ErrorKind::kAborted);
  EXPECT_FALSE(operation->has_ended());
  fault.reset();
  await_end(*operation);
  EXPECT_EQ(tensor.values(), Values{1});
}

// Such as those of a weight that has two names: their copies are not ordered.
TEST(DevicesTest, TheRootOfABroadcastInPlaceIsNotWritten) {
  World world(1, on(Homes::kPaged));
  world.run([](Engine& engine) {
    DeviceTensor tensor({1});
    const Faulty faulty(Fault::kQueuePut);
    Request broadcast = tensor.sum("x");
    broadcast.signature.collective = Collective::kBroadcast;
    broadcast.signature.root = 0;
    EXPECT_TRUE(make(engine, std::move(broadcast)).ok());
  });
}

}  // namespace
}  // namespace ciranda
