// The program in C++ over ciranda/native, which the native parts of framework bindings stand on. Every call ends in its
// callback, where the operation is kept for the outputs that the engine allocated.
#include <ciranda/native/call.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "program.h"

CIRANDA_DEFINE_TABLE

namespace {

namespace native = ciranda::native;

// How a call ended, once it has.
struct Ending {
  std::mutex lock;
  std::condition_variable changed;
  bool has_ended = false;
  ciranda_status status = CIRANDA_PENDING;
  std::string message;
  native::Kept operation;
};

// What a framework's call holds: here, who waits for it.
struct Waiter {
  explicit Waiter(std::shared_ptr<Ending> of_call) : ending(std::move(of_call)) {}

  std::shared_ptr<Ending> ending;

  void end(const native::Outcome& outcome) {
    const std::lock_guard guard(ending->lock);
    ending->status = outcome.status;
    ending->message = outcome.message;
    ending->operation = native::Kept(outcome);
    ending->has_ended = true;
    ending->changed.notify_all();
  }
};

}  // namespace

struct suite_call {
  std::shared_ptr<Ending> ending = std::make_shared<Ending>();
};

const char* suite_start(const ciranda_table* table) {
  static char message[512];
  return ciranda_use_table(table, message, sizeof message) == CIRANDA_OK ? nullptr : message;
}

suite_call* suite_submit(const suite_request* given) {
  auto call = std::make_unique<suite_call>();
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.collective = given->collective;
  request.op = given->op;
  request.root = given->root;
  request.process_set = given->process_set;
  request.flags |= given->flags;
  request.prescale = given->prescale;
  request.postscale = given->postscale;
  request.name = given->name;
  request.tensors = given->tensors;
  request.tensors_count = given->tensors_count;
  native::submit(std::make_unique<Waiter>(call->ending), request);
  return call.release();
}

ciranda_status suite_wait(suite_call* call) {
  Ending& ending = *call->ending;
  std::unique_lock guard(ending.lock);
  ending.changed.wait(guard, [&] { return ending.has_ended; });
  return ending.status;
}

const char* suite_message(const suite_call* call) { return call->ending->message.c_str(); }

size_t suite_outputs_count(const suite_call* call) {
  return call->ending->operation.get() == nullptr ? 0 : ciranda_operation_outputs_count(call->ending->operation.get());
}

ciranda_output suite_output(const suite_call* call, size_t index) { return call->ending->operation.output(index); }

int64_t suite_value(const suite_call* call) { return ciranda_operation_value(call->ending->operation.get()); }

void suite_release(suite_call* call) { delete call; }

int64_t suite_live(void) { return native::live_calls(); }
