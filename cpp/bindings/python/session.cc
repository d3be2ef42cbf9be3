#include "bindings/python/session.hpp"

#include <algorithm>
#include <utility>

#include "bindings/python/errors.hpp"

namespace ciranda::python {

Session::Session(Config config, std::unique_ptr<Engine> engine)
    : config_(std::move(config)), engine_(std::move(engine)) {}

const std::shared_ptr<Engine>& Session::engine() const {
  if (engine_ == nullptr) raise(Status::aborted("Ciranda has been shut down in this process"));
  return engine_;
}

void Session::shutdown() {
  std::shared_ptr<Engine> engine = std::move(engine_);
  engine_ = nullptr;
  if (engine == nullptr) return;
  {
    const nb::gil_scoped_release released;
    engine->shutdown();
    engine.reset();
  }
  release_done();
}

void Session::abandon() {
  // Never destroyed, on purpose: destruction would join a thread that this process does not have.
  static_cast<void>(new std::shared_ptr<Engine>(std::move(engine_)));  // NOLINT(cppcoreguidelines-owning-memory)
  engine_ = nullptr;
}

void Session::adopt(Engine::OperationPtr operation, Tensors tensors) {
  adopted_.push_back({std::move(operation), std::move(tensors)});
}

void Session::release_done() {
  if (adopted_.empty()) return;
  // Dropping a tensor can run Python code that comes back here: take them out first.
  const auto first_done =
      std::stable_partition(adopted_.begin(), adopted_.end(), [](const Adopted& a) { return !a.operation->is_done(); });
  const std::vector<Adopted> done(std::make_move_iterator(first_done), std::make_move_iterator(adopted_.end()));
  adopted_.erase(first_done, adopted_.end());
}

}  // namespace ciranda::python
