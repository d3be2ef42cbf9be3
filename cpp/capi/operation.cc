// operation: ciranda_submit() to ciranda_operation_release().
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/translate.hpp"
#include "ciranda/ciranda.h"

namespace ciranda::capi {
namespace {

Operation::Callback callback_of(const ciranda_request& request) {
  if (request.callback == nullptr) return nullptr;
  return [callback = request.callback, user_data = request.user_data](const Operation& done) {
    const ciranda_operation view{nullptr, nullptr, &done};
    callback(&view, user_data);
  };
}

std::unique_ptr<ciranda_operation> handle_of(const ciranda_context& context, Engine::OperationPtr operation) {
  auto handle = std::make_unique<ciranda_operation>();
  handle->engine = context.engine;
  handle->operation = operation.get();
  handle->owned = std::move(operation);
  return handle;
}

ciranda_status submit(ciranda_context& context, const ciranda_request& from, ciranda_operation** operation) {
  Result<Request> request = translate(from);
  if (!request.ok()) return static_cast<ciranda_status>(request.status().kind());
  // Made before the request is handed in, so that nothing can fail after that.
  auto handle = operation == nullptr ? nullptr : std::make_unique<ciranda_operation>();
  auto submitted = context.engine->submit(std::move(request).value(), callback_of(from));
  if (!handle) return CIRANDA_OK;
  handle->engine = context.engine;
  handle->operation = submitted.get();
  handle->owned = std::move(submitted);
  *operation = handle.release();
  return CIRANDA_OK;
}

ciranda_status wait(ciranda_operation& operation, const Engine::Interrupted& interrupted) {
  if (operation.engine == nullptr) return CIRANDA_INVALID_ARGUMENT;  // a callback's: must not wait
  return static_cast<ciranda_status>(operation.engine->wait(operation.owned, interrupted).kind());
}

// Whether any of its outputs is not in memory that the caller gave.
bool has_allocated(const Operation& done) {
  return std::any_of(done.outputs().begin(), done.outputs().end(),
                     [](const OutputBuffer& output) { return output.data.use_count() > 0; });
}

ciranda_status run(ciranda_context& context, const ciranda_request& from, ciranda_operation** operation) {
  Engine& engine = *context.engine;
  std::optional<Engine::OperationPtr> submitted;
  if (const std::optional<Call> call = as_call(from)) submitted = engine.repeat(*call);
  if (submitted && *submitted == nullptr) return CIRANDA_OK;
  if (!submitted) {
    Result<Request> request = translate(from);
    if (!request.ok()) return static_cast<ciranda_status>(request.status().kind());
    request.value().is_awaited = true;
    submitted = engine.submit(std::move(request).value(), callback_of(from));
  }
  const Engine::OperationPtr& done = *submitted;
  const Status status = engine.wait(done);
  const bool has_more = !status.ok() || has_allocated(*done) || done->value() != 0;
  if (operation != nullptr && has_more) *operation = handle_of(context, done).release();
  return static_cast<ciranda_status>(status.kind());
}

}  // namespace
}  // namespace ciranda::capi

extern "C" {

ciranda_status ciranda_submit(ciranda_context* context, const ciranda_request* request,
                              ciranda_operation** operation) noexcept {
  if (operation != nullptr) *operation = nullptr;
  if (context == nullptr || request == nullptr) return CIRANDA_INVALID_ARGUMENT;
  return ciranda::capi::guarded([&] { return ciranda::capi::submit(*context, *request, operation); });
}

ciranda_status ciranda_run(ciranda_context* context, const ciranda_request* request,
                           ciranda_operation** operation) noexcept {
  if (operation != nullptr) *operation = nullptr;
  if (context == nullptr || request == nullptr) return CIRANDA_INVALID_ARGUMENT;
  return ciranda::capi::guarded([&] { return ciranda::capi::run(*context, *request, operation); });
}

ciranda_status ciranda_wait(ciranda_operation* operation) noexcept {
  if (operation == nullptr) return CIRANDA_INVALID_ARGUMENT;
  return ciranda::capi::guarded([&] { return ciranda::capi::wait(*operation, nullptr); });
}

ciranda_status ciranda_wait_interruptible(ciranda_operation* operation, int (*give_up)(void*),
                                          void* user_data) noexcept {
  if (operation == nullptr) return CIRANDA_INVALID_ARGUMENT;
  return ciranda::capi::guarded([&] {
    if (give_up == nullptr) return ciranda::capi::wait(*operation, nullptr);
    return ciranda::capi::wait(*operation, [=] { return give_up(user_data) != 0; });
  });
}

int ciranda_poll(ciranda_operation* operation) noexcept {
  if (operation == nullptr || operation->engine == nullptr) return 1;
  bool is_done = false;
  ciranda::capi::guarded([&] {
    is_done = operation->engine->poll(operation->owned);
    return CIRANDA_OK;
  });
  return is_done ? 1 : 0;
}

ciranda_status ciranda_operation_status(const ciranda_operation* operation) noexcept {
  if (operation == nullptr) return CIRANDA_INVALID_ARGUMENT;
  if (!operation->operation->is_done()) return CIRANDA_PENDING;
  return static_cast<ciranda_status>(operation->operation->status().kind());
}

const char* ciranda_operation_message(const ciranda_operation* operation) noexcept {
  if (operation == nullptr) return "operation is NULL";
  return operation->operation->is_done() ? operation->operation->status().message().c_str() : "";
}

size_t ciranda_operation_outputs_count(const ciranda_operation* operation) noexcept {
  if (operation == nullptr || !operation->operation->is_done()) return 0;
  return operation->operation->outputs().size();
}

ciranda_status ciranda_operation_output(const ciranda_operation* operation, size_t index,
                                        ciranda_output* output) noexcept {
  if (output == nullptr) return CIRANDA_INVALID_ARGUMENT;
  *output = {nullptr, 0, nullptr, 0};
  if (operation == nullptr) return CIRANDA_INVALID_ARGUMENT;
  if (!operation->operation->is_done()) return CIRANDA_PENDING;
  const auto& outputs = operation->operation->outputs();
  if (index >= outputs.size()) return CIRANDA_INVALID_ARGUMENT;
  const ciranda::OutputBuffer& buffer = outputs[index];
  *output = {buffer.data.get(), buffer.n_bytes, buffer.shape.data(), static_cast<int32_t>(buffer.shape.size())};
  return CIRANDA_OK;
}

int64_t ciranda_operation_value(const ciranda_operation* operation) noexcept {
  return operation == nullptr || !operation->operation->is_done() ? 0 : operation->operation->value();
}

void ciranda_operation_release(ciranda_operation* operation) noexcept {
  const std::unique_ptr<ciranda_operation> owned(operation);
}

}  // extern "C"
