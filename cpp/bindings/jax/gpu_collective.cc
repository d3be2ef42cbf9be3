#include "bindings/jax/gpu_collective.hpp"

#include <ciranda/native/context.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "bindings/jax/collective_call.hpp"
#include "bindings/jax/gpu_frame.hpp"
#include "bindings/jax/handler.hpp"
#include "bindings/jax/memory.hpp"
#include "bindings/jax/reply.hpp"

namespace ciranda::jax {

ffi::Error* run_gpu_collective(ffi::Frame* frame) {
  if (is_question(frame)) return nullptr;
  GpuFrame given(*frame);
  if (!given.problem.empty()) return refusal(*frame, given.problem);
  const native::Context world;
  if (!world) return refusal(*frame, native::kNotInitialized);
  std::string problem = name_problem(*frame, given.parameters);
  CollectiveCall call(std::move(given.parameters), given.memory);
  if (problem.empty()) problem = call.take(*frame, world.get());
  if (!problem.empty()) return refusal(*frame, problem);
  ciranda_request request = call.request();
  request.flags |= CIRANDA_REQUEST_AWAITED;
  ciranda_operation* made = nullptr;
  ciranda_status status = ciranda_submit(world.get(), &request, &made);
  const native::Operation operation(made);
  if (operation != nullptr) status = ciranda_wait(operation.get());
  if (status != CIRANDA_OK) return make_error(frame->api, code_of(status), native::failure_of(operation));
  problem = call.finish(operation.get());
  return problem.empty() ? nullptr : make_error(frame->api, ffi::kFailedPrecondition, problem.c_str());
}

ffi::Error* get_gpu_size(ffi::Frame* frame) {
  if (is_question(frame)) return nullptr;
  const GpuFrame given(*frame);
  if (!given.problem.empty()) return refusal(*frame, given.problem);
  const native::Context world;
  if (!world) return refusal(*frame, native::kNotInitialized);
  std::string problem = size_problem(given.parameters, world.get());
  if (!problem.empty()) return refusal(*frame, problem);
  const auto process_set = static_cast<std::uint32_t>(given.parameters.process_set);
  const auto size = static_cast<std::uint32_t>(ciranda_process_set_ranks(world.get(), process_set, nullptr, 0));
  auto* const to = static_cast<std::byte*>(frame->results.items[0]->data);
  // By its bytes: memory of the host that a copy could be of would have to live until the GPU comes to it.
  for (std::size_t byte = 0; byte < sizeof(size) && problem.empty(); ++byte) {
    problem = given.memory.fill(to + byte, static_cast<std::uint8_t>(size >> (8 * byte)), 1);
  }
  return problem.empty() ? nullptr : make_error(frame->api, ffi::kInternal, problem.c_str());
}

}  // namespace ciranda::jax
