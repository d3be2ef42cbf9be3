// Small sums that ranks wait for, for the tests of calls that are carried out without the log, by direct rounds.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <latch>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "text_matchers.hpp"

namespace ciranda::testing {

// As a blocking call does.
inline Request awaited(Request r) {
  r.is_awaited = true;
  return r;
}

inline Request sum_of(const std::string& name, std::vector<float>& values) {
  return awaited(request(Collective::kAllreduce, name, DataType::kFloat32, {static_cast<std::int64_t>(values.size())},
                         values.data()));
}

inline Status sum(Engine& engine, const std::string& name, std::vector<float>& values, bool is_awaited = true,
                  std::uint32_t process_set = 0) {
  Request r = sum_of(name, values);
  r.is_awaited = is_awaited;
  r.process_set = process_set;
  const Engine::OperationPtr operation = submit_request(engine, std::move(r));
  if (!is_awaited) poll_until_done(engine, operation);
  return engine.wait(operation);
}

// What a rank contributes to a step, and each element of the sum.
inline std::vector<float> filled(std::size_t count, int rank, int step) {
  return std::vector<float>(count, static_cast<float>((rank + 1) * (step + 1)));
}
inline float expected(int n_ranks, int step) { return static_cast<float>(n_ranks * (n_ranks + 1) / 2 * (step + 1)); }

// Calls `step(i)` until `n` more calls were carried out without the log, and returns how many were: fewer only if it
// gave up. A call goes by the log where the background thread has an engine for a moment, so nobody can say how many
// do; all ranks see the same number.
template <typename Step>
std::uint64_t meet(Engine& engine, std::uint64_t n, Step step) {
  const std::uint64_t before = engine.n_direct();
  const auto n_direct = [&] { return engine.n_direct() - before; };
  const int most = 50 * static_cast<int>(n);
  for (int i = 0; i < most && n_direct() < n; ++i) step(i);
  return n_direct();
}

// What a rank did last is told of it when it is missed, also if it was no entry of the log.
inline void expect_that_the_last_call_is_told_of_a_missed_rank(WorldOptions options) {
  const Watchdog watchdog("a missed rank");
  end_stalls_soon(options.config);
  World world(2, options);
  std::latch has_failed(1);
  world.run([&](Engine& engine) {
    std::vector<float> values = filled(4, engine.rank(), 0);
    for (const char* name : {"again", "other"}) ASSERT_TRUE(sum(engine, name, values).ok());
    EXPECT_EQ(meet(engine, 1, [&](int) { EXPECT_TRUE(sum(engine, "again", values).ok()); }), 1U);
    if (engine.rank() == 1) has_failed.wait();
    const Status status = sum(engine, "rare", values);
    EXPECT_TRUE(contains(status.message(), "last submitted 'again'")) << status.message();
    if (engine.rank() == 0) has_failed.count_down();
  });
}

}  // namespace ciranda::testing
