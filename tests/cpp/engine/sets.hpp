// Calls without tensors: on process sets, lanes and participation; and how a test adds a process set.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/requests.hpp"

namespace ciranda::testing {

// Without a name.
inline Request bare(Collective collective, std::vector<std::int64_t> arguments = {}) {
  Request r;
  r.signature.collective = collective;
  r.signature.arguments = std::move(arguments);
  r.is_cacheable = false;
  return r;
}

// By all ranks of the world. The id of the set.
inline std::uint32_t add_set(Engine& engine, std::vector<std::int64_t> ranks) {
  const auto operation = submit_request(engine, bare(Collective::kAddProcessSet, std::move(ranks)));
  const Status status = engine.wait(operation);
  EXPECT_TRUE(status.ok()) << status.message();
  return static_cast<std::uint32_t>(operation->value());
}

}  // namespace ciranda::testing
