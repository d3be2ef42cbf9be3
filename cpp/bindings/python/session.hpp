// Session: one connected engine as the objects of Python share it, from connect to shutdown.
//
// Ownership: engine objects and operations share the session; the engine itself lives until shutdown (or until the last
// wait that was under way then has returned). Python tensors of operations that nobody holds any more are kept here
// until the operation is done.
// Threads: every method needs the GIL, except that shutdown() gives it up while it talks to the other ranks.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "base/config.hpp"
#include "bindings/python/tensor_reader.hpp"
#include "engine/engine.hpp"

namespace ciranda::python {

class Session {
 public:
  // The Python objects whose memory an operation reads and writes.
  struct Tensors {
    nb::object inputs;
    nb::object outputs;
  };

  Session(Config config, std::unique_ptr<Engine> engine);

  const Config& config() const { return config_; }
  bool is_open() const { return engine_ != nullptr; }
  // Throws AbortedError after shutdown.
  const std::shared_ptr<Engine>& engine() const;
  TensorReader& reader() { return reader_; }

  void shutdown();
  // For a child process after fork(): the engine's thread and connections are its parent's, and must not be touched.
  void abandon();

  // Keeps the tensors until the operation is done.
  void adopt(Engine::OperationPtr operation, Tensors tensors);
  // Lets go of what adopt() took and is done.
  void release_done();

 private:
  struct Adopted {
    Engine::OperationPtr operation;
    Tensors tensors;
  };

  Config config_;
  std::shared_ptr<Engine> engine_;
  TensorReader reader_;
  std::vector<Adopted> adopted_;
};

}  // namespace ciranda::python
