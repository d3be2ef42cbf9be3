// Scenarios in a program of their own, since settings are the process's, and a GPU that has failed stays so.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <iostream>

#include "engine/requests.hpp"

namespace ciranda::testing {

// Writes what fails on standard error, which the program that waits shows: by itself a program of a death test is
// silent.
class Failures final : public ::testing::ScopedFakeTestPartResultReporter {
 public:
  Failures() : ScopedFakeTestPartResultReporter(INTERCEPT_ALL_THREADS, nullptr) {}
  void ReportTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cerr << result << std::flush;
    has_failed.store(true);
  }

  static inline std::atomic<bool> has_failed{false};
};

// Ends the program as it is, from any thread.
[[noreturn]] inline void end_program() { std::_Exit(Failures::has_failed.load() ? EXIT_FAILURE : EXIT_SUCCESS); }

// Until all ranks of a scenario's world are here.
inline void await_all(Engine& engine) {
  Request barrier;
  barrier.name = "all";
  barrier.signature.collective = Collective::kBarrier;
  const Status status = engine.wait(submit_request(engine, barrier));
  EXPECT_TRUE(status.ok()) << "rank " << engine.rank() << ": " << status.message();
}

// What `scenario` expects holds.
inline void expect_in_own_program(const std::function<void()>& scenario) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    const Failures failures;
    scenario();
    end_program();
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(EXIT_SUCCESS), "");
}

}  // namespace ciranda::testing
