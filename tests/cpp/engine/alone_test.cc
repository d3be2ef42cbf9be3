// Collectives of one rank with tensors on a GPU of the fake driver: they stay there, take no more launches and copies
// than they need, and have the bits of the same calls in host memory. (Every type and op: conformance_test.cc.)
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "engine/fake_driver.hpp"
#include "engine/guarded.hpp"
#include "engine/homes.hpp"
#include "engine/own_program.hpp"
#include "engine/sets.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"

#ifndef CIRANDA_SANITIZED

namespace ciranda {
namespace {

using testing::AtHome;
using testing::cuda_home;
using testing::Guarded;
using testing::Home;
using testing::Homes;
using testing::Layout;
using testing::n_fake_calls;
using testing::options_for;
using testing::set_fake;
using testing::wait_at_home;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

// What a call asked of the driver.
struct Asked {
  std::uint64_t n_launches = 0;
  std::uint64_t n_copies = 0;  // on the GPU
  std::uint64_t n_by_host = 0;

  friend bool operator==(const Asked&, const Asked&) = default;
  friend std::ostream& operator<<(std::ostream& to, const Asked& asked) {
    return to << asked.n_launches << " launches, " << asked.n_copies << " copies, " << asked.n_by_host
              << " by the host";
  }
};

Asked asked_until_now() {
  return {n_fake_calls("cuLaunchKernel"), n_fake_calls("cuMemcpyAsync"),
          n_fake_calls("cuMemcpyDtoHAsync") + n_fake_calls("cuMemcpyHtoDAsync")};
}

enum class Output : std::uint8_t { kInput, kOther, kOfEngine };

// A call, and what it may ask for.
struct AloneCall {
  const char* name;
  Collective collective;
  Output output;
  Asked asks;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::size_t n_tensors = 1;
  bool is_weighted = false;
};

constexpr Asked kNothing{};
constexpr Asked kLaunch{.n_launches = 1};
constexpr Asked kCopy{.n_copies = 1};

constexpr AloneCall kCalls[] = {
    {"sum", Collective::kAllreduce, Output::kInput, kNothing},
    {"average", Collective::kAllreduce, Output::kInput, kNothing, ReduceOp::kAverage},
    {"scaled", Collective::kAllreduce, Output::kInput, kLaunch, ReduceOp::kSum, 0.3, -1.75},
    {"scaled average", Collective::kAllreduce, Output::kOther, kLaunch, ReduceOp::kAverage, 0.3},
    {"elsewhere", Collective::kAllreduce, Output::kOther, kCopy},
    {"by weight", Collective::kAllreduce, Output::kInput, kLaunch, ReduceOp::kAverage, 1, 1, 1, true},
    {"adasum", Collective::kAllreduce, Output::kOther, kCopy, ReduceOp::kAdasum},
    {"scaled adasum", Collective::kAllreduce, Output::kInput, kLaunch, ReduceOp::kAdasum, 0.3},
    {"group", Collective::kAllreduce, Output::kOther, kLaunch, ReduceOp::kSum, 1, 1, 5},
    {"scaled group", Collective::kAllreduce, Output::kInput, {.n_launches = 5}, ReduceOp::kSum, 1, 0.3, 5},
    {"reduce", Collective::kReduce, Output::kOther, kCopy},
    {"scan", Collective::kScan, Output::kOther, kLaunch, ReduceOp::kSum, 0.3},
    {"broadcast", Collective::kBroadcast, Output::kInput, kNothing},
    {"allgather", Collective::kAllgather, Output::kOfEngine, kCopy},
    {"gather", Collective::kGather, Output::kOfEngine, kCopy},
    {"reducescatter", Collective::kReducescatter, Output::kOfEngine, kCopy},
    {"scaled reducescatter", Collective::kReducescatter, Output::kOfEngine, kLaunch, ReduceOp::kSum, 0.3},
    {"alltoall", Collective::kAlltoall, Output::kOfEngine, kCopy},
    {"scatter", Collective::kScatter, Output::kOfEngine, kCopy},
};

using Results = std::vector<std::vector<std::byte>>;

// The bits of float16 numbers, among them infinities and NaNs.
std::vector<std::byte> some_bytes(std::size_t tensor) {
  std::vector<std::byte> bytes(2 * (1000 + tensor));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i * 7 + i / 256 + tensor);
  return bytes;
}

// Makes the call where this thread's rank is at home. `asked`: what it asked of the driver.
Results results_of(Engine& engine, const AloneCall& call, std::uint32_t set, Asked* asked = nullptr) {
  Request r;
  r.name = call.name;
  r.process_set = set;
  r.signature.collective = call.collective;
  r.signature.op = call.op;
  r.signature.prescale = call.prescale;
  r.signature.postscale = call.postscale;
  r.signature.is_weighted = call.is_weighted;
  r.weight = 3;
  if (info(call.collective).has_root) r.signature.root = engine.rank();
  std::vector<Guarded> inputs, outputs;
  for (std::size_t i = 0; i < call.n_tensors; ++i) {
    inputs.emplace_back(some_bytes(i), Guarded::kMisaligned);
    outputs.emplace_back(some_bytes(i).size(), Guarded::kAligned);
    const auto count = static_cast<std::int64_t>(some_bytes(i).size() / 2);
    r.signature.tensors.push_back({DataType::kFloat16, {count}});
    std::byte* const elsewhere = call.output == Output::kOther ? outputs[i].data() : nullptr;
    r.memory.push_back(
        {inputs[i].data(), call.output == Output::kInput ? inputs[i].data() : elsewhere, testing::home().place});
    if (call.collective == Collective::kAlltoall) r.splits.push_back({count});
  }
  set_fake("FAKE_CUDA_FAIL", "cuInit:1000:1");  // counts from here
  const auto operation = submit_request(engine, r);
  const Status status = wait_at_home(engine, operation);
  EXPECT_TRUE(status.ok()) << status.message();
  if (asked != nullptr) *asked = asked_until_now();
  Results results;
  for (std::size_t i = 0; i < call.n_tensors && status.ok(); ++i) {
    const Guarded& written = call.output == Output::kInput ? inputs[i] : outputs[i];
    const auto bytes = written.bytes();
    results.push_back(call.output == Output::kOfEngine ? testing::contents(operation->outputs()[i])
                                                       : std::vector(bytes.begin(), bytes.end()));
    EXPECT_TRUE(inputs[i].is_intact() && outputs[i].is_intact());
  }
  return results;
}

using Expect = std::function<void(const AloneCall&, const Asked&)>;

void expect_what_it_needs(const AloneCall& call, const Asked& asked) { EXPECT_EQ(asked, call.asks); }

void make_all_calls(Engine& engine, std::uint32_t set, const Expect& expect) {
  for (const AloneCall& call : kCalls) {
    SCOPED_TRACE(call.name);
    for (int time = 0; time < 2; ++time) {
      Asked asked;
      const Results on_gpu = results_of(engine, call, set, &asked);
      expect(call, asked);
      const AtHome in_host_memory{Home{}};
      EXPECT_EQ(on_gpu, results_of(engine, call, set));
    }
  }
}

// On late streams, in a program of their own.
void expect_in_world(int size, WorldOptions options, const std::function<void(Engine&)>& calls) {
  options.homes = options.config.gpu_way == "nccl" ? Homes::kCudaNccl : Homes::kCuda;
  testing::expect_in_own_program([&] {
    const Watchdog watchdog("one rank");
    cuda_home(0);
    set_fake("FAKE_CUDA_DELAY_SEED", "7");
    World world(size, options);
    world.run(calls);
  });
}

TEST(AloneDeathTest, OneRankKeepsItsTensorsOnTheGpu) {
  for (const char* way : {"", "peer", "nccl"}) {
    SCOPED_TRACE(way);
    WorldOptions options = options_for(Layout::kArena, 1);
    options.config.gpu_way = way;
    expect_in_world(1, options, [](Engine& engine) { make_all_calls(engine, 0, expect_what_it_needs); });
  }
}

TEST(AloneDeathTest, ItStagesThemIfAskedTo) {
  WorldOptions options = options_for(Layout::kArena, 1);
  options.config.gpu_way = "staged";
  expect_in_world(1, options, [](Engine& engine) {
    make_all_calls(engine, 0, [](const AloneCall&, const Asked& asked) { EXPECT_GT(asked.n_by_host, 0U) << asked; });
  });
}

// Where the world has calls that are staged: between hosts, and with a rank in host memory.
TEST(AloneDeathTest, ASetOfOneRankKeepsItsTensorsOnTheGpu) {
  WorldOptions options = options_for(Layout::kChannels, 2);
  expect_in_world(2, options, [](Engine& engine) {
    const std::optional<AtHome> in_host_memory = engine.rank() == 1 ? std::optional<AtHome>(Home{}) : std::nullopt;
    const std::uint32_t set = testing::add_set(engine, {0});
    results_of(engine, kCalls[0], 0);
    if (engine.rank() == 0) make_all_calls(engine, set, expect_what_it_needs);
    results_of(engine, kCalls[0], 0);
  });
}

// It has no memory of a lane's on one of them.
TEST(AloneDeathTest, ItsTensorsMayBeOnAnyGpu) {
  expect_in_world(1, options_for(Layout::kArena, 1), [](Engine& engine) {
    for (const int number : {0, 1, 0, 2}) {
      const AtHome at(cuda_home(0, true, number));
      Asked asked;
      results_of(engine, kCalls[2], 0, &asked);
      EXPECT_EQ(asked, kLaunch) << "GPU " << number;
    }
  });
}

// Whichever call of the driver fails, the call gets an error or its result, and nothing hangs.
TEST(AloneDeathTest, AnyCallOfTheDriverMayFail) {
  for (int nth = 1; nth <= 12; ++nth) {
    SCOPED_TRACE("call " + std::to_string(nth));
    expect_in_world(1, options_for(Layout::kArena, 1), [nth](Engine& engine) {
      const std::vector<std::byte> content = some_bytes(0);
      Guarded tensor(content, Guarded::kAligned);
      set_fake("FAKE_CUDA_FAIL", "*:" + std::to_string(nth) + ":719");
      Status status;
      for (int step = 0; step < 3 && status.ok(); ++step) {
        Request r = testing::request(Collective::kAllreduce, "sum", DataType::kFloat16,
                                     {static_cast<std::int64_t>(content.size() / 2)}, tensor.data());
        r.signature.prescale = 0.5;
        status = wait_at_home(engine, submit_request(engine, r));
      }
      EXPECT_TRUE(status.ok() || status.message().find("GPU 0") != std::string::npos) << status.message();
      testing::end_program();  // a GPU that has failed frees nothing
    });
  }
}

}  // namespace
}  // namespace ciranda

#endif
