// handles: the definitions of the opaque types of ciranda.h.
//
// Operations share ownership of the engine, so a handle may outlive its context. After ciranda_shutdown() every
// operation is done, and that is all that the engine is asked for.
//
// Used by context.cc, memory.cc, operation.cc, recording.cc, Worlds and Session; an operation by one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/config.hpp"
#include "capi/kept_slot.hpp"
#include "engine/engine.hpp"

// Created and destroyed in capi/worlds.hpp. The engine lives as long as the context: after the world is left, it
// refuses calls.
struct ciranda_context {
  ciranda::Config config;
  std::shared_ptr<ciranda::Engine> engine;
  ciranda::capi::KeptSlot slot;  // kept until the world is left
  std::atomic<std::size_t> n_references{0};
  std::atomic<std::size_t> n_sessions{0};  // references of bindings that keep them until they end; included above
  std::atomic<bool> is_left{false};
};

struct ciranda_handle {
  ciranda::OpHandle op;
};

struct ciranda_operation {
  ciranda_operation() = default;
  // For a callback: valid as long as `done` is.
  ciranda_operation(const ciranda::Operation& done, std::string_view from) : operation(&done), binding(from) {}

  std::shared_ptr<ciranda::Engine> engine;        // null in a callback
  std::shared_ptr<ciranda::Operation> owned;      // null in a callback
  const ciranda::Operation* operation = nullptr;  // never null
  std::string binding;                            // the binding that made the call; empty if unknown
  // The operation's message in that binding's terms, created when it is first requested.
  mutable std::once_flag has_message;
  mutable std::string message;
};
