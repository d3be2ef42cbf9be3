// For tests that describe their calls as requests, whose parts they own and compare.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "call/call.hpp"
#include "engine/engine.hpp"

namespace ciranda {

// The fast path of Engine::run() by itself.
class Repeating {
 public:
  static std::optional<Engine::OperationPtr> repeat(Engine& engine, const Call& call, OpHandle* handle) {
    return engine.repeat(call, handle);
  }
};

// The call that asks for what a new request says; it views the request.
class CallOf {
 public:
  explicit CallOf(const Request& request) {
    const Signature& signature = request.signature;
    static_cast<Terms&>(call_) = signature;
    for (std::size_t i = 0; i < request.memory.size(); ++i) tensors_.push_back(tensor_of(request, i));
    call_.name = request.name;
    call_.is_cacheable = request.is_cacheable;
    call_.has_room_for_all = request.has_room_for_all;
    call_.needs_all = signature.needs_all;
    call_.tensors = tensors_;
    call_.splits = request.splits;
    call_.arguments = signature.arguments;
    call_.process_set = request.process_set;
    call_.lane = request.lane;
    if (signature.is_weighted) call_.weight = request.weight;
    call_.priority = request.priority;
    call_.hints = request;
  }
  CallOf(const CallOf&) = delete;
  CallOf& operator=(const CallOf&) = delete;

  operator const Call&() const { return call_; }  // NOLINT(google-explicit-constructor)

 private:
  Call call_;
  std::vector<CallTensor> tensors_;
};

inline Engine::OperationPtr submit_request(Engine& engine, const Request& request,
                                           Operation::Callback callback = nullptr, OpHandle* handle = nullptr) {
  return engine.submit(CallOf(request), std::move(callback), handle);
}

inline std::optional<Engine::OperationPtr> repeat(Engine& engine, const Call& call, OpHandle* handle = nullptr) {
  return Repeating::repeat(engine, call, handle);
}

}  // namespace ciranda
