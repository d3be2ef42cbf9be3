#include "bindings/python/session.hpp"

#include <algorithm>
#include <utility>

#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "capi/worlds.hpp"

namespace ciranda::python {

Session::Session(ciranda_context& context) : config_(context.config), context_(&context) { ++context.n_sessions; }

Session::~Session() {
  if (context_ == nullptr) return;
  --context_->n_sessions;
  capi::leave(*context_);
}

const std::shared_ptr<Engine>& Session::engine() const {
  if (!is_open()) {
    stay_if_detained();
    raise(Status::aborted("Ciranda has been shut down in this process"));
  }
  return context_->engine;
}

void Session::shutdown() {
  ciranda_context* const context = std::exchange(context_, nullptr);
  if (context == nullptr) return;
  --context->n_sessions;
  {
    const GilReleased released;
    capi::leave(*context);
  }
  release_done();
}

// The context is deliberately not released: that would join a thread that this process does not have.
void Session::abandon() { context_ = nullptr; }

// No thread waits for the operation any more. If the engine has deferred work to the wait, poll() does it, so that the
// call reaches other ranks.
void Session::adopt(Engine::OperationPtr operation, Tensors tensors) {
  if (is_open()) context_->engine->poll(operation);
  adopted_.push_back({std::move(operation), std::move(tensors)});
}

void Session::release_done() {
  if (adopted_.empty()) return;
  // Releasing a tensor can run Python code that calls this function again, so they are first removed from adopted_.
  const auto first_done = std::stable_partition(adopted_.begin(), adopted_.end(),
                                                [](const Adopted& a) { return !a.operation->has_ended(); });
  const std::vector<Adopted> done(std::make_move_iterator(first_done), std::make_move_iterator(adopted_.end()));
  adopted_.erase(first_done, adopted_.end());
}

}  // namespace ciranda::python
