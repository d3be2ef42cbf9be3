// Session: one world of this process, from connect to shutdown, shared by Python's objects. Bindings in C share the
// world's context (capi/worlds.hpp) and may shut it down as well, with the same effect.
//
// Ownership: Python's engine objects and operations share the session. The engine itself lives until shutdown, until
// the waits that were pending then have returned, and until the last reference to the context is released. If the
// handle of a pending operation is deleted, the session keeps the operation's Python tensors until the operation ends.
// Threads: every method needs the GIL, except that shutdown() releases it while it communicates with the other ranks.
//
// Called by EngineHandle, CallBuilder and OperationHandle.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "bindings/python/tensor_reader.hpp"
#include "capi/handles.hpp"
#include "engine/engine.hpp"

namespace ciranda::python {

class Session {
 public:
  // The Python objects whose memory an operation reads and writes.
  struct Tensors {
    nb::object inputs;
    nb::object outputs;
  };

  // Takes over one reference to the context.
  explicit Session(ciranda_context& context);
  ~Session();  // shutdown(), if that was not called
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Config& config() const { return config_; }
  bool is_open() const { return context_ != nullptr && !context_->is_left; }
  // The path where this process keeps its slot (capi/kept_slot.hpp); empty if it keeps none.
  std::string kept_slot() const { return is_open() ? context_->slot.path() : std::string(); }
  // Throws AbortedError after shutdown.
  const std::shared_ptr<Engine>& engine() const;
  TensorReader& reader() { return reader_; }

  void shutdown();
  // For a child process after fork(): the engine's thread and connections are its parent's, and must not be touched.
  void abandon();

  // Keeps the tensors until the operation has ended.
  void adopt(Engine::OperationPtr operation, Tensors tensors);
  // Releases the tensors kept by adopt() whose operation has ended. This may run any Python code, even calls of this
  // session. REQUIRES: values read earlier from tensors, or from this session, are not used afterwards.
  void release_done();

 private:
  struct Adopted {
    Engine::OperationPtr operation;
    Tensors tensors;
  };

  Config config_;
  TensorReader reader_;
  std::vector<Adopted> adopted_;
  ciranda_context* context_;  // null after shutdown
};

}  // namespace ciranda::python
