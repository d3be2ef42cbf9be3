#include "bindings/jax/collective.hpp"

#include <atomic>
#include <ciranda/native/call.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "bindings/jax/collective_call.hpp"
#include "bindings/jax/handler.hpp"
#include "bindings/jax/parameters.hpp"
#include "bindings/jax/reply.hpp"

namespace ciranda::jax {

namespace {

// How long a handler waits for a small call while no other call is pending. If the call ends by then, no thread has to
// be woken. With concurrent calls, handlers would wait in vain if other ranks make these calls in another order.
constexpr double kLookSeconds = 50e-6;
constexpr std::size_t kSmallBytes = 64 << 10;

// The number of calls whose end has not been reported to XLA.
std::atomic<int> n_pending{0};

// A pending call.
class Running {
 public:
  explicit Running(CollectiveCall call) : call_(std::move(call)) {}

  CollectiveCall& call() { return call_; }
  bool open(ffi::Frame* frame) { return reply_.open(frame); }

  void end(const native::Outcome& outcome) {
    n_pending.fetch_sub(1);  // before the reply, which may run the program's next steps
    if (outcome.status != CIRANDA_OK) {
      reply_.fail(code_of(outcome.status), outcome.message);
      return;
    }
    const std::string problem = call_.finish(outcome.operation);
    if (problem.empty()) {
      reply_.end();
    } else {
      reply_.fail(ffi::kFailedPrecondition, problem.c_str());
    }
  }

 private:
  CollectiveCall call_;
  Reply reply_;
};

}  // namespace

ffi::Error* run_collective(ffi::Frame* frame) {
  if (is_question(frame)) return nullptr;
  Parameters parameters;
  std::string problem = read(frame->attributes, &parameters);
  if (!problem.empty()) return make_error(frame->api, ffi::kInternal, problem.c_str());
  const native::Context world;
  if (!world) return refusal(*frame, native::kNotInitialized);
  problem = name_problem(*frame, parameters);
  if (!problem.empty()) return refusal(*frame, problem);
  auto running = std::make_unique<Running>(CollectiveCall(std::move(parameters), Memory::of_host()));
  problem = running->call().take(*frame, world.get());
  if (!problem.empty()) return refusal(*frame, problem);
  if (!running->open(frame)) return make_error(frame->api, ffi::kInternal, "XLA could not make a future");
  const ciranda_request request = running->call().request();
  const bool is_small = running->call().n_bytes() <= kSmallBytes;
  const bool is_alone = n_pending.fetch_add(1) == 0;
  if (is_small && is_alone) {
    native::submit_and_look(world.get(), std::move(running), request, kLookSeconds);
  } else {
    native::submit(world.get(), std::move(running), request);
  }
  return nullptr;
}

ffi::Error* get_size(ffi::Frame* frame) {
  if (is_question(frame)) return nullptr;
  Parameters parameters;
  const std::string problem = read(frame->attributes, &parameters);
  if (!problem.empty()) return make_error(frame->api, ffi::kInternal, problem.c_str());
  const native::Context world;
  if (!world) return refusal(*frame, native::kNotInitialized);
  const std::string changed = size_problem(parameters, world.get());
  if (!changed.empty()) return refusal(*frame, changed);
  const std::size_t n_ranks =
      ciranda_process_set_ranks(world.get(), static_cast<std::uint32_t>(parameters.process_set), nullptr, 0);
  const auto size = static_cast<std::int32_t>(n_ranks);
  std::memcpy(frame->results.items[0]->data, &size, sizeof(size));
  return nullptr;
}

ffi::Error* do_nothing(ffi::Frame* frame) {
  (void)is_question(frame);
  return nullptr;
}

}  // namespace ciranda::jax
