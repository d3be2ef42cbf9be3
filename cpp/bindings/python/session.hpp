// Session: one world of this process as the objects of Python share it, from connect to shutdown. Bindings in C share
// the world's context (capi/worlds.hpp) and may shut it down as well: then it is as if Python had.
//
// Ownership: engine objects and operations share the session; the engine itself lives until shutdown (or until the last
// wait that was under way then has returned, and the last reference to the context is given back). Python tensors of
// operations that nobody holds any more are kept here until the operation is done.
// Threads: every method needs the GIL, except that shutdown() gives it up while it talks to the other ranks.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
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

  // With a reference to the context, which the session gives back.
  explicit Session(ciranda_context& context);
  ~Session();  // shutdown(), if that was not called
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Config& config() const { return config_; }
  bool is_open() const { return context_ != nullptr && !context_->is_left; }
  // Throws AbortedError after shutdown.
  const std::shared_ptr<Engine>& engine() const;
  TensorReader& reader() { return reader_; }

  void shutdown();
  // For a child process after fork(): the engine's thread and connections are its parent's, and must not be touched.
  void abandon();

  // Keeps the tensors until the operation is done.
  void adopt(Engine::OperationPtr operation, Tensors tensors);
  // Lets go of what adopt() took and is done. That may run Python code, which may do anything, calls of this session
  // included: REQUIRES: nothing read from tensors, or from this session, is used afterwards.
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
