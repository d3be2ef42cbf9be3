// Calls that are part of CUDA graphs, by the fake NCCL on the fake driver: each rank captures them on a stream of its
// own, and launches the graph again and again, on tensors with other values.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/fake_driver.hpp"
#include "engine/graphs.hpp"
#include "engine/guarded.hpp"
#include "engine/homes.hpp"
#include "engine/own_program.hpp"
#include "engine/requests.hpp"
#include "engine/watchdog.hpp"
#include "engine/worlds_test.hpp"

#ifndef CIRANDA_SANITIZED

namespace ciranda {
namespace {

using testing::await_all;
using testing::Capture;
using testing::Graph;
using testing::Guarded;
using testing::home;
using testing::Homes;
using testing::Layout;
using testing::options_for;
using testing::request;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

constexpr int kRanks = 3;

void expect_by_nccl(const std::function<void(Engine&)>& scenario, const std::function<void(WorldOptions&)>& set = {}) {
  testing::expect_in_own_program([&] {
    const Watchdog watchdog("graphs");
    WorldOptions options = options_for(Layout::kArena, kRanks);
    options.homes = Homes::kCudaNccl;
    options.config.gpu_way = "nccl";
    options.config.slot_bytes = 4096;  // so that 300 KB are two chunks
    if (set) set(options);
    World world(kRanks, options);
    world.run(scenario);
  });
}

// A tensor of this rank, at a place that stays.
class Tensor {
 public:
  explicit Tensor(std::size_t n, std::size_t misalignment = Guarded::kAligned)
      : n_(n), memory_(n * sizeof(float), misalignment) {}

  void set(float value) {
    const std::vector<float> values(n_, value);
    testing::write(home(), memory_.data(), std::as_bytes(std::span(values)));
  }
  void expect(float value) const {
    const std::vector<float> values(n_, value);
    EXPECT_TRUE(memory_.holds(std::as_bytes(std::span(values))))
        << "instead of " << value << " " << reinterpret_cast<const float*>(memory_.bytes().data())[0];
    EXPECT_TRUE(memory_.is_intact());
  }
  std::byte* data() { return memory_.data(); }
  std::int64_t n() const { return static_cast<std::int64_t>(n_); }

 private:
  const std::size_t n_;
  Guarded memory_;
};

std::uint64_t n_kernels_under_way() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<std::uint64_t (*)()>(dlsym(library, "fake_nccl_n_under_way"))();
}

Request sum_of(const std::string& name, Tensor& tensor) {
  return request(Collective::kAllreduce, name, DataType::kFloat32, {tensor.n()}, tensor.data());
}

// Makes the call, and has this rank's stream wait for it.
Status wait_for(Engine& engine, Request call) {
  const Engine::OperationPtr operation = submit_request(engine, std::move(call));
  const Status status = engine.wait(operation);
  return status.ok() ? operation->order(home().place) : status;
}

// The calls are made once, and then captured.
std::unique_ptr<Graph> capture(Engine& engine, const std::function<void()>& calls) {
  calls();
  await_all(engine);
  Capture capture(home().place.queue);
  calls();
  auto graph = std::make_unique<Graph>(capture.end());
  await_all(engine);
  return graph;
}

void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

TEST(GraphDeathTest, AnAllreduceIsDoneAtEachLaunchWithTheValuesOfThen) {
  expect_by_nccl([](Engine& engine) {
    Tensor tensor(1000);
    const auto graph = capture(engine, [&] { expect_ok(wait_for(engine, sum_of("x", tensor))); });
    for (const float value : {1.0F, 2.0F, 5.0F}) {
      tensor.set(value + static_cast<float>(engine.rank()));
      graph->launch(home().place.queue);
      tensor.expect(3 * value + 3);
    }
  });
}

// Averages, factors, tensors that have to be packed, and two chunks, in a room of the graph's own; a call that packs
// beside it, on another stream, uses the communicator's. Both graphs have one.
TEST(GraphDeathTest, WhatIsPackedUsesNoMemoryOfOtherCalls) {
  for (const char* const reduces : {"nccl", "ciranda"}) {
    SCOPED_TRACE(reduces);
    expect_by_nccl(
        [](Engine& engine) {
          testing::set_fake("FAKE_CUDA_DELAY_SEED", "7");
          Tensor small(10), odd(99, 4), large(75'000, 4), beside(50'000, 4);
          const auto group = [&](const std::string& name) {
            Request r = sum_of(name, small);
            for (Tensor* each : {&odd, &large}) {
              r.signature.tensors.push_back({DataType::kFloat32, {each->n()}});
              r.memory.push_back({each->data(), each->data(), home().place});
            }
            r.signature.op = ReduceOp::kAverage;
            r.signature.prescale = 2;
            r.signature.postscale = 3;
            return r;
          };
          const auto one = capture(engine, [&] { expect_ok(wait_for(engine, group("one"))); });
          const auto two = capture(engine, [&] {
            expect_ok(wait_for(engine, group("two")));
            expect_ok(wait_for(engine, sum_of("after", odd)));
          });
          const testing::Home other = testing::cuda_home(engine.rank() + 4, true, engine.rank());
          for (int step = 0; step < 3; ++step) {
            for (Tensor* each : {&small, &odd, &large}) each->set(static_cast<float>(step));
            Engine::OperationPtr eager;
            {
              const testing::AtHome at(other);
              eager = submit_request(engine, sum_of("beside", beside));
            }
            expect_ok(engine.wait(eager));
            one->launch(home().place.queue);
            two->launch(home().place.queue);
            for (Tensor* each : {&small, &large}) each->expect(static_cast<float>(36 * step));
            odd.expect(static_cast<float>(36 * 3 * step));
            expect_ok(eager->order(home().place));
            await_all(engine);
          }
          EXPECT_TRUE(engine.await_results().ok());
        },
        [reduces](WorldOptions& options) { options.config.gpu_reduce = reduces; });
  }
}

TEST(GraphDeathTest, EveryCollectiveOfNcclMayBeCaptured) {
  expect_by_nccl([](Engine& engine) {
    const int rank = engine.rank();
    Tensor sent(6), cast(6), scattered(6), gathered(6 * kRanks), exchanged(6);
    std::vector<Engine::OperationPtr> made;
    const auto begin = [&](Request r) {
      made.push_back(submit_request(engine, std::move(r)));
      expect_ok(engine.wait(made.back()));
      expect_ok(made.back()->order(home().place));
    };
    const auto graph = capture(engine, [&] {
      made.clear();
      Request broadcast = request(Collective::kBroadcast, "cast", DataType::kFloat32, {6}, cast.data());
      broadcast.signature.root = 1;
      begin(broadcast);
      Request cut = request(Collective::kReducescatter, "cut", DataType::kFloat32, {6}, sent.data());
      cut.memory.front().output = nullptr;
      begin(cut);
      Request all = request(Collective::kAllgather, "whole", DataType::kFloat32, {6}, sent.data(), gathered.data());
      all.has_room_for_all = true;
      begin(all);
      Request uneven = request(Collective::kAllgather, "uneven", DataType::kFloat32, {2 + rank}, sent.data());
      uneven.memory.front().output = nullptr;
      begin(uneven);
      Request exchange = request(Collective::kAlltoall, "exchange", DataType::kFloat32, {6}, sent.data());
      exchange.splits = {{1, 2, 3}};
      exchange.memory.front().output = nullptr;
      begin(exchange);
      Request reduced = request(Collective::kReduce, "reduced", DataType::kFloat32, {6}, scattered.data());
      reduced.signature.root = 2;
      reduced.signature.op = ReduceOp::kMax;
      begin(reduced);
    });
    const auto expect_output = [&](std::size_t which, std::size_t n, float value) {
      const auto bytes = testing::contents(made[which]->outputs().front());
      ASSERT_EQ(bytes.size(), n * sizeof(float));
      EXPECT_EQ(reinterpret_cast<const float*>(bytes.data())[n - 1], value) << which;
    };
    for (const float step : {1.0F, 2.0F}) {
      sent.set(step * static_cast<float>(rank + 1));
      cast.set(step * static_cast<float>(rank));
      scattered.set(step * static_cast<float>(rank));
      graph->launch(home().place.queue);
      cast.expect(step);
      expect_output(1, 2, 6 * step);
      expect_output(3, 9, 3 * step);
      expect_output(4, 3 * (static_cast<std::size_t>(rank) + 1), 3 * step);
      const std::vector<std::byte> all = testing::contents(made[2]->outputs().front());
      for (std::size_t i = 0; i < kRanks; ++i) {
        EXPECT_EQ(reinterpret_cast<const float*>(all.data())[6 * i], step * static_cast<float>(i + 1));
      }
      scattered.expect(rank == 2 ? 2 * step : step * static_cast<float>(rank));
    }
  });
}

// A graph and all that it uses end together; the communicator ends with the world and the last graph.
TEST(GraphDeathTest, WhatAGraphUsesIsUsedAgainByTheNext) {
  expect_by_nccl([](Engine& engine) {
    Tensor tensor(99, 4);
    for (int step = 0; step < 4; ++step) {
      const auto graph = capture(engine, [&] { expect_ok(wait_for(engine, sum_of("x", tensor))); });
      for (int again = 0; again < 2; ++again) {
        tensor.set(static_cast<float>(step));
        graph->launch(home().place.queue);
        tensor.expect(static_cast<float>(3 * step));
      }
      await_all(engine);
    }
  });
}

void expect_refused(const Status& status, const std::string& part) {
  EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument) << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

TEST(GraphDeathTest, ACallThatWasNotMadeBeforeIsRefusedOnAllRanks) {
  expect_by_nccl([](Engine& engine) {
    Tensor tensor(1000), other(2000);
    tensor.set(1);
    const std::string unknown = "ranks have not made this call by NCCL before";
    {
      const Capture capture(home().place.queue);
      expect_refused(wait_for(engine, sum_of("x", tensor)), "allreduce 'x': its stream is being captured");
      Request unnamed = sum_of("", tensor);
      unnamed.is_cacheable = false;
      expect_refused(wait_for(engine, unnamed), "no call by it has been made in this process set and lane");
    }
    await_all(engine);
    expect_ok(wait_for(engine, sum_of("x", tensor)));
    tensor.expect(3);
    {
      const Capture capture(home().place.queue);
      expect_refused(wait_for(engine, sum_of("y", tensor)), unknown);
      expect_refused(wait_for(engine, sum_of("x", other)), unknown);
    }
    tensor.expect(3);
    expect_ok(wait_for(engine, sum_of("x", tensor)));
    tensor.expect(9);
    await_all(engine);
  });
}

TEST(GraphDeathTest, ARankThatDoesNotCaptureFailsTheCallOnAll) {
  expect_by_nccl([](Engine& engine) {
    Tensor tensor(1000);
    tensor.set(1);
    expect_ok(wait_for(engine, sum_of("x", tensor)));
    await_all(engine);
    const std::string both = "captured into a CUDA graph on ranks 0, 2, and not on rank 1";
    if (engine.rank() == 1) {
      expect_refused(wait_for(engine, sum_of("x", tensor)), both);
    } else {
      const Capture capture(home().place.queue);
      expect_refused(wait_for(engine, sum_of("x", tensor)), both);
    }
    await_all(engine);
    tensor.expect(3);
    const auto graph = capture(engine, [&] { expect_ok(wait_for(engine, sum_of("x", tensor))); });
    tensor.expect(9);
    graph->launch(home().place.queue);
    tensor.expect(27);
    await_all(engine);
  });
}

// Its result belongs to the graph: nobody waits for it elsewhere, and what others do meanwhile is no part of it.
TEST(GraphDeathTest, CallsOfOtherStreamsAreNoPartOfTheGraph) {
  expect_by_nccl([](Engine& engine) {
    Tensor tensor(1000), beside(99, 4);
    tensor.set(1);
    beside.set(1);
    const testing::Home other = testing::cuda_home(engine.rank() + 4, true, engine.rank());
    expect_ok(wait_for(engine, sum_of("x", tensor)));
    expect_ok(wait_for(engine, sum_of("beside", beside)));
    EXPECT_TRUE(engine.await_results().ok());
    await_all(engine);
    Capture capture(home().place.queue);
    const auto operation = submit_request(engine, sum_of("x", tensor));
    expect_ok(engine.wait(operation));
    EXPECT_TRUE(operation->has_ended());
    expect_refused(operation->order(other.place), "its result is part of a CUDA graph");
    Engine::OperationPtr outside;
    {
      const testing::AtHome at(other);
      outside = submit_request(engine, sum_of("beside", beside));
      expect_ok(engine.wait(outside));
      expect_ok(outside->order(other.place));
    }
    expect_ok(operation->order(home().place));
    const Graph graph(capture.end());
    EXPECT_EQ(Capture::n_nodes(graph.captured()), 1U);  // NCCL's kernel
    expect_refused(operation->order(home().place), "its result is part of a CUDA graph");
    expect_ok(operation->status());
    expect_ok(outside->order(home().place));
    beside.expect(9);
    await_all(engine);
  });
}

// A kernel of a launch that spins for a lost rank is ended, though no call is under way. What NCCL keeps for the graph
// keeps neither the engine nor the process.
TEST(GraphDeathTest, ALostRankEndsLaunchesAndFailsTheNextCall) {
  testing::expect_in_own_program([] {
    const Watchdog watchdog("graphs");
    WorldOptions options = options_for(Layout::kArena, kRanks);
    options.homes = Homes::kCudaNccl;
    options.config.gpu_way = "nccl";
    World world(kRanks, options);
    std::barrier<> all(kRanks);
    world.run([&](Engine& engine) {
      Tensor tensor(99, 4);
      const auto graph = capture(engine, [&] { expect_ok(wait_for(engine, sum_of("x", tensor))); });
      EXPECT_TRUE(engine.await_results().ok());
      all.arrive_and_wait();
      if (engine.rank() == 2) {
        world.fabric().kill(2);
      } else {
        graph->launch(home().place.queue);
      }
      const Status next = engine.wait(submit_request(engine, sum_of("next", tensor)));
      EXPECT_FALSE(next.ok());
      if (engine.rank() != 2) {
        EXPECT_NE(next.message().find("Launches of CUDA graphs with collectives that had not ended are void"),
                  std::string::npos)
            << next.message();
      }
      while (n_kernels_under_way() > 0) std::this_thread::yield();
      if (engine.rank() != 2) graph->launch(home().place.queue);  // moves nothing, and ends
      while (n_kernels_under_way() > 0) std::this_thread::yield();
      all.arrive_and_wait();
      testing::end_program();
    });
  });
}

}  // namespace
}  // namespace ciranda

#endif  // CIRANDA_SANITIZED
