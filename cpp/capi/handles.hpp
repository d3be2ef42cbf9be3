// handles: what the opaque types of ciranda.h are.
//
// Operations share the engine, so that a handle may outlive its context: after ciranda_shutdown() every operation is
// done, and the engine behind it is only asked that.
#pragma once

#include <memory>

#include "base/config.hpp"
#include "engine/engine.hpp"

struct ciranda_context {
  ciranda::Config config;
  std::shared_ptr<ciranda::Engine> engine;
};

struct ciranda_operation {
  std::shared_ptr<ciranda::Engine> engine;        // null in a callback
  std::shared_ptr<ciranda::Operation> owned;      // null in a callback
  const ciranda::Operation* operation = nullptr;  // never null
};
