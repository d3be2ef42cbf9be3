// handles: what the opaque types of ciranda.h are.
//
// Operations share the engine, so that a handle may outlive its context: after ciranda_shutdown() every operation is
// done, and the engine behind it is only asked that.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/config.hpp"
#include "capi/kept_place.hpp"
#include "engine/engine.hpp"

// Made and ended by capi/worlds.hpp. The engine lives as long as the context: one that was left goes on refusing.
struct ciranda_context {
  ciranda::Config config;
  std::shared_ptr<ciranda::Engine> engine;
  ciranda::capi::KeptPlace place;  // until it is left
  std::atomic<std::size_t> n_references{0};
  std::atomic<std::size_t> n_sessions{0};  // of the references: those of bindings that keep theirs until they end
  std::atomic<bool> is_left{false};
};

struct ciranda_handle {
  ciranda::OpHandle op;
};

struct ciranda_operation {
  ciranda_operation() = default;
  // In a callback: valid as long as the operation is.
  ciranda_operation(const ciranda::Operation& done, std::string_view from) : operation(&done), binding(from) {}

  std::shared_ptr<ciranda::Engine> engine;        // null in a callback
  std::shared_ptr<ciranda::Operation> owned;      // null in a callback
  const ciranda::Operation* operation = nullptr;  // never null
  std::string binding;                            // who asked; empty if nobody has said so
  // The operation's message as that binding tells it, made when it is first asked for.
  mutable std::once_flag has_message;
  mutable std::string message;
};
