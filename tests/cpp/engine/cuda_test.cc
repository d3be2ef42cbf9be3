// Tensors on a GPU, by the fake driver, whose checker ends the program where two uses of memory are not ordered: what
// becomes of a call when the driver refuses something, and late streams. (Every collective, type and op:
// conformance_test.cc and rows_conformance_test.cc.)
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <latch>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/guarded.hpp"
#include "engine/homes.hpp"
#include "engine/sets.hpp"
#include "engine/watchdog.hpp"
#include "engine/worlds_test.hpp"

#ifndef CIRANDA_SANITIZED

namespace ciranda {
namespace {

using testing::AtHome;
using testing::bare;
using testing::cuda_home;
using testing::Guarded;
using testing::Home;
using testing::home;
using testing::Homes;
using testing::kLayouts;
using testing::Layout;
using testing::options_for;
using testing::request;
using testing::wait_at_home;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

using Values = std::vector<std::int64_t>;

// One of the fake driver's own functions.
template <typename Function>
Function* of_fake(const char* name) {
  void* const fake = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function*>(dlsym(fake, name));
}
void set_fake(const char* name, const std::string& value) {
  of_fake<void(const char*, const char*)>("fake_cuda_set")(name, value.c_str());
}

// In a program of its own, as a GPU that has failed stays so.
void expect_in_own_program(const std::function<void()>& scenario) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    scenario();
    std::_Exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(EXIT_SUCCESS), "");
}

Request sum_of(Guarded& tensor, std::size_t n) {
  return request(Collective::kAllreduce, "sum", DataType::kInt64, {static_cast<std::int64_t>(n)}, tensor.data());
}

Request rows_of(Guarded& tensor, std::size_t n) {
  Request r = sum_of(tensor, n);
  r.name = "rows";
  r.signature.collective = Collective::kAllgather;
  r.memory.front().output = nullptr;
  return r;
}

Guarded tensor_of(const Values& values) { return {std::as_bytes(std::span(values)), Guarded::kAligned}; }

// A sum, and a result that the GPU allocates. Returns how often a call failed on this rank.
int make_calls(Engine& engine, Guarded& tensor, std::size_t n) {
  int n_failed = 0;
  for (int i = 0; i < 2; ++i) {
    for (Request r : {sum_of(tensor, n), rows_of(tensor, n)}) {
      const auto operation = submit_request(engine, std::move(r));
      const Status status = wait_at_home(engine, operation);
      if (status.ok()) continue;
      ++n_failed;
      EXPECT_FALSE(status.message().empty());
    }
  }
  return n_failed;
}

// Rank 0 has its tensor on the GPU, rank 1 in host memory.
void run_beside_host(const std::function<void(Engine&, Guarded&)>& body) {
  const Watchdog watchdog("a GPU beside host memory");
  const Home gpu = cuda_home(0);
  WorldOptions options = options_for(Layout::kArena, 2);
  World world(2, options);
  world.run([&](Engine& engine) {
    const AtHome at(engine.rank() == 0 ? gpu : Home{});
    Guarded tensor = tensor_of({1, 2, 3});
    body(engine, tensor);
  });
}

// Whichever call of the driver fails first, rank 0 gets an error or has made its calls, and rank 1 does not hang.
TEST(CudaDeathTest, AnyCallOfTheDriverMayFail) {
  expect_in_own_program(
      [] { run_beside_host([](Engine& engine, Guarded& tensor) { EXPECT_EQ(make_calls(engine, tensor, 3), 0); }); });
  for (int nth = 1; nth <= 60; nth += 2) {
    for (const char* error : {"719", "2"}) {  // launch failed, which ends the context; out of memory
      expect_in_own_program([&] {
        run_beside_host([&](Engine& engine, Guarded& tensor) {
          if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "*:" + std::to_string(nth) + ":" + error);
          make_calls(engine, tensor, 3);
          if (engine.rank() == 0) std::_Exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
          static_cast<void>(engine.wait(submit_request(engine, bare(Collective::kBarrier))));
        });
      });
    }
  }
}

TEST(CudaDeathTest, ACopyThatFailsNamesTheGpuOnAllRanks) {
  expect_in_own_program([] {
    std::latch is_over(2);
    run_beside_host([&](Engine& engine, Guarded& tensor) {
      if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL_RUN", "cuMemcpyDtoHAsync:1:700");
      const Status status = engine.wait(submit_request(engine, sum_of(tensor, 3)));
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find("GPU 0"), std::string::npos) << status.message();
      is_over.arrive_and_wait();
      std::_Exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);  // its memory cannot be freed any more
    });
  });
}

TEST(CudaDeathTest, AResultForWhichTheGpuHasNoMemoryFailsAlone) {
  expect_in_own_program([] {
    run_beside_host([&](Engine& engine, Guarded& tensor) {
      if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "cuMemAllocAsync:1:2");
      const Status status = wait_at_home(engine, submit_request(engine, rows_of(tensor, 3)));
      EXPECT_EQ(status.message(),
                engine.rank() == 0 ? "there is no memory on GPU 0 for a result of 48 bytes" : std::string());
      EXPECT_EQ(make_calls(engine, tensor, 3), 0);
    });
  });
}

TEST(CudaDeathTest, AGpuThatIsNotThereIsRefused) {
  expect_in_own_program([] {
    run_beside_host([&](Engine& engine, Guarded& tensor) {
      if (engine.rank() == 1) return;
      Request r = sum_of(tensor, 3);
      r.memory.front().place.index = 7;
      const auto operation = submit_request(engine, std::move(r));
      EXPECT_TRUE(operation->is_refused());
      EXPECT_NE(operation->status().message().find("GPU 7"), std::string::npos) << operation->status().message();
    });
  });
}

// Of all ranks on one GPU, with delays in the GPU's streams: the values, and what the checker sees.
TEST(CudaDeathTest, LateStreamsChangeNothing) {
  expect_in_own_program([] {
    const Watchdog watchdog("late streams");
    cuda_home(0);  // which loads the driver
    for (const Layout layout : kLayouts) {
      WorldOptions options = options_for(layout, 3);
      options.homes = Homes::kCuda;
      World world(3, options);
      set_fake("FAKE_CUDA_DELAY_SEED", "7");
      world.run([](Engine& engine) {
        for (int step = 0; step < 20; ++step) {
          std::vector<Guarded> tensors;
          std::vector<Engine::OperationPtr> operations;
          for (std::size_t i = 0; i < 5; ++i) tensors.push_back(tensor_of(Values(1 + i * 1000, step + engine.rank())));
          for (std::size_t i = 0; i < tensors.size(); ++i) {
            Request r = sum_of(tensors[i], 1 + i * 1000);
            r.name = std::to_string(i);
            r.is_deferrable = true;
            operations.push_back(submit_request(engine, std::move(r)));
          }
          for (std::size_t i = 0; i < tensors.size(); ++i) {
            ASSERT_TRUE(wait_at_home(engine, operations[i]).ok());
            const Values expected(1 + i * 1000, 3 * step + 3);
            EXPECT_TRUE(tensors[i].holds(std::as_bytes(std::span(expected))));
            EXPECT_TRUE(tensors[i].is_intact());
          }
        }
      });
    }
  });
}

}  // namespace
}  // namespace ciranda

#endif  // CIRANDA_SANITIZED
