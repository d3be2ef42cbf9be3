#include "bindings/jax/look.hpp"

#include <ciranda/native/looks.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "bindings/jax/collective_call.hpp"
#include "bindings/jax/gpu_frame.hpp"
#include "bindings/jax/handler.hpp"
#include "bindings/jax/parameters.hpp"
#include "bindings/jax/reply.hpp"

namespace ciranda::jax {

namespace {

// Null if it has seen nothing wrong.
ffi::Error* error_of(const ffi::Frame& frame, const native::Looks::Outcome& seen) {
  if (seen.status == CIRANDA_OK) return nullptr;
  const std::string message = std::string(kBinding) + ": " + seen.message;
  return make_error(frame.api, code_of(seen.status), message.c_str());
}

}  // namespace

ffi::Error* look(ffi::Frame* frame) {
  if (is_question(frame)) return nullptr;
  Parameters parameters;
  const std::string problem = read(frame->attributes, &parameters);
  if (!problem.empty()) return make_error(frame->api, ffi::kInternal, problem.c_str());
  std::vector<const void*> data;
  for (std::int64_t i = 0; i < frame->arguments.size; ++i) data.push_back(frame->arguments.items[i]->data);
  return error_of(*frame, native::looks().show(parameters.name, data));
}

ffi::Error* look_at_gpu(ffi::Frame* frame) {
  if (is_question(frame)) return nullptr;
  const GpuFrame given(*frame);
  if (!given.problem.empty()) return refusal(*frame, given.problem);
  if (native::looks().has_ended(given.parameters.name)) return nullptr;
  std::vector<std::vector<std::byte>> copies;
  std::vector<const void*> data;
  for (std::int64_t i = 0; i < frame->arguments.size; ++i) {
    const ffi::Buffer& buffer = *frame->arguments.items[i];
    std::vector<std::byte>& copy = copies.emplace_back(n_bytes_of(buffer).value_or(0));
    const std::string problem = given.memory.fetch(copy.data(), buffer.data, copy.size());
    if (!problem.empty()) return make_error(frame->api, ffi::kInternal, problem.c_str());
    data.push_back(copy.data());
  }
  return error_of(*frame, native::looks().show(given.parameters.name, data));
}

}  // namespace ciranda::jax
