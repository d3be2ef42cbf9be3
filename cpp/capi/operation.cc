// operation: ciranda_submit() to ciranda_operation_release(), and more handles of one operation.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/translate.hpp"
#include "ciranda/ciranda.h"

namespace ciranda::capi {
namespace {

std::string_view binding_of(const ciranda_request& request) {
  const char* const binding = field_of(request, &ciranda_request::binding);
  return binding != nullptr ? binding : std::string_view();
}

// Null if the request has no handle.
OpHandle* handle_of(const ciranda_request& request) {
  ciranda_handle* const handle = field_of(request, &ciranda_request::handle);
  return handle != nullptr ? &handle->op : nullptr;
}

Operation::Callback callback_of(ciranda_callback callback, void* user_data, std::string_view binding) {
  if (callback == nullptr) return nullptr;
  return [callback, user_data, binding = std::string(binding)](const Operation& done) {
    const ciranda_operation view(done, binding);
    callback(&view, user_data);
  };
}

Operation::Callback callback_of(const ciranda_request& request) {
  return callback_of(request.callback, request.user_data, binding_of(request));
}

// A handle without an operation, which complete_handle() adds.
std::unique_ptr<ciranda_operation> new_handle(std::string_view binding) {
  auto handle = std::make_unique<ciranda_operation>();
  handle->binding = binding;
  return handle;
}

ciranda_operation* complete_handle(std::unique_ptr<ciranda_operation> handle, std::shared_ptr<Engine> engine,
                                   Engine::OperationPtr operation) {
  handle->engine = std::move(engine);
  handle->operation = operation.get();
  handle->owned = std::move(operation);
  return handle.release();
}

ciranda_status submit(ciranda_context& context, const ciranda_request& from, ciranda_operation** operation) {
  TranslatedCall translated;
  if (Status status = translate(from, translated); !status.ok()) return static_cast<ciranda_status>(status.kind());
  // The handle is created before the request is submitted, so that nothing can fail afterwards.
  auto handle = operation == nullptr ? nullptr : new_handle(binding_of(from));
  std::shared_ptr<Engine> engine = context.engine;  // the callback may release the context meanwhile
  Engine::OperationPtr submitted = engine->submit(translated.call, callback_of(from), handle_of(from));
  if (handle) *operation = complete_handle(std::move(handle), std::move(engine), std::move(submitted));
  return CIRANDA_OK;
}

ciranda_status wait(ciranda_operation& operation, const Engine::Interrupted& interrupted,
                    const Engine::Deadline& deadline = {}) {
  if (operation.owned == nullptr) return CIRANDA_INVALID_ARGUMENT;  // a callback's handle: must not wait
  if (operation.engine == nullptr) return static_cast<ciranda_status>(operation.owned->status().kind());
  return static_cast<ciranda_status>(operation.engine->wait(operation.owned, interrupted, deadline).kind());
}

Engine::Deadline deadline_in(double seconds) {
  constexpr double kLongest = 1e8;  // more than three years, which the clock can represent
  const std::chrono::duration<double> left(seconds > 0 ? std::min(seconds, kLongest) : 0.0);
  return std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(left);
}

// A further handle of the operation. If `of` is a callback's handle, the operation is done and needs no engine.
ciranda_operation* one_more(const ciranda_operation& of) {
  auto owned = of.owned != nullptr ? of.owned : std::const_pointer_cast<Operation>(of.operation->shared_from_this());
  return complete_handle(new_handle(of.binding), of.engine, std::move(owned));
}

const char* message_of(const ciranda_operation& handle) {
  const Operation& operation = *handle.operation;
  if (!operation.is_done()) return "";
  const std::string& message = operation.status().message();
  if (handle.binding.empty() || message.empty()) return message.c_str();
  std::call_once(handle.has_message, [&] { handle.message = handle.binding + ": " + message; });
  return handle.message.c_str();
}

// Whether any output is not in memory that the caller gave.
bool has_allocated(const Operation& done) {
  return std::any_of(done.outputs().begin(), done.outputs().end(),
                     [](const OutputBuffer& output) { return output.data.use_count() > 0; });
}

ciranda_status run(ciranda_context& context, const ciranda_request& from, ciranda_operation** operation) {
  if (Status status = Engine::may("run a request"); !status.ok()) {
    auto refused = std::make_shared<Operation>();
    refused->refuse(std::move(status));
    if (operation != nullptr) {
      *operation = complete_handle(new_handle(binding_of(from)), context.engine, std::move(refused));
    }
    return CIRANDA_INVALID_ARGUMENT;
  }
  TranslatedCall translated;
  if (Status status = translate(from, translated); !status.ok()) return static_cast<ciranda_status>(status.kind());
  std::shared_ptr<Engine> engine;
  Engine::OperationPtr done;
  if (from.callback == nullptr) {
    done = context.engine->run(translated.call, handle_of(from));
    if (done == nullptr) return CIRANDA_OK;
    engine = context.engine;
  } else {
    engine = context.engine;  // as in submit()
    translated.call.hints.is_awaited = true;
    done = engine->submit(translated.call, callback_of(from), handle_of(from));
  }
  const Status status = engine->wait(done);
  const bool has_more = !status.ok() || has_allocated(*done) || done->value() != 0;
  if (operation != nullptr && has_more) {
    *operation = complete_handle(new_handle(binding_of(from)), std::move(engine), done);
  }
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

ciranda_status ciranda_wait_for(ciranda_operation* operation, double seconds) noexcept {
  if (operation == nullptr) return CIRANDA_INVALID_ARGUMENT;
  return ciranda::capi::guarded(
      [&] { return ciranda::capi::wait(*operation, nullptr, ciranda::capi::deadline_in(seconds)); });
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

ciranda_status ciranda_operation_call_back(ciranda_operation* operation, ciranda_callback callback,
                                           void* user_data) noexcept {
  if (operation == nullptr || operation->engine == nullptr || callback == nullptr) return CIRANDA_INVALID_ARGUMENT;
  return ciranda::capi::guarded([&] {
    operation->engine->call_back(operation->owned, ciranda::capi::callback_of(callback, user_data, operation->binding));
    return CIRANDA_OK;
  });
}

ciranda_status ciranda_operation_status(const ciranda_operation* operation) noexcept {
  if (operation == nullptr) return CIRANDA_INVALID_ARGUMENT;
  if (!operation->operation->is_done()) return CIRANDA_PENDING;
  return static_cast<ciranda_status>(operation->operation->status().kind());
}

const char* ciranda_operation_message(const ciranda_operation* operation) noexcept {
  if (operation == nullptr) return "operation is NULL";
  const char* message = "out of memory for the message";
  ciranda::capi::guarded([&] {
    message = ciranda::capi::message_of(*operation);
    return CIRANDA_OK;
  });
  return message;
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

ciranda_status ciranda_operation_output_device(const ciranda_operation* operation, size_t index, int32_t* device_type,
                                               int32_t* device) noexcept {
  if (operation == nullptr || device_type == nullptr || device == nullptr) return CIRANDA_INVALID_ARGUMENT;
  if (!operation->operation->is_done()) return CIRANDA_PENDING;
  const auto& outputs = operation->operation->outputs();
  if (index >= outputs.size()) return CIRANDA_INVALID_ARGUMENT;
  *device_type = static_cast<int32_t>(outputs[index].place.type);
  *device = outputs[index].place.index;
  return CIRANDA_OK;
}

ciranda_status ciranda_operation_order(const ciranda_operation* operation, int32_t device_type, int32_t device,
                                       void* stream) noexcept {
  if (operation == nullptr) return CIRANDA_INVALID_ARGUMENT;
  if (!operation->operation->is_done()) return CIRANDA_PENDING;
  return ciranda::capi::guarded([&] {
    const ciranda::Place place{static_cast<ciranda::DeviceType>(device_type), device, stream};
    return static_cast<ciranda_status>(operation->operation->order(place).kind());
  });
}

int ciranda_operation_has_ended(const ciranda_operation* operation) noexcept {
  return operation != nullptr && operation->operation->has_ended() ? 1 : 0;
}

int64_t ciranda_operation_value(const ciranda_operation* operation) noexcept {
  return operation == nullptr || !operation->operation->is_done() ? 0 : operation->operation->value();
}

ciranda_operation* ciranda_operation_retain(const ciranda_operation* operation) noexcept {
  ciranda_operation* retained = nullptr;
  ciranda::capi::guarded([&] {
    if (operation != nullptr) retained = ciranda::capi::one_more(*operation);
    return CIRANDA_OK;
  });
  return retained;
}

void ciranda_operation_release(ciranda_operation* operation) noexcept {
  const std::unique_ptr<ciranda_operation> owned(operation);
}

ciranda_handle* ciranda_handle_new() noexcept { return new (std::nothrow) ciranda_handle; }

void ciranda_handle_release(ciranda_handle* handle) noexcept { const std::unique_ptr<ciranda_handle> owned(handle); }

}  // extern "C"
