#include "bindings/mpi/calls.hpp"

#include <string>

#include "bindings/mpi/errors.hpp"

namespace ciranda::mpi {

Tensor::Tensor(const void* input, void* output, ciranda_dtype dtype, std::int64_t rows, std::int64_t columns)
    : shape_{rows, columns}, tensor_{input, output, shape_.data(), 2, dtype, nullptr, 0, 0, 0, nullptr} {}

ciranda_request request_of(ciranda_collective collective) {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.collective = collective;
  request.binding = "jax.lax";
  return request;
}

void run(Communicator& communicator, ciranda_request request, const Tensor& tensor, std::int64_t kind, bool is_split) {
  const native::Context world;
  const SetAndLane at = communicator.set_and_lane(world);
  const Signature signature{request.collective, kind, tensor.get().dtype, tensor.count(), {-1, -1}, is_split};
  const std::string name = communicator.name_of(signature);
  request.process_set = at.process_set;
  request.lane = at.lane;
  request.name = name.c_str();
  const bool has_tensor = request.collective != CIRANDA_BARRIER;
  request.tensors = has_tensor ? &tensor.get() : nullptr;
  request.tensors_count = has_tensor ? 1 : 0;

  ciranda_operation* made = nullptr;
  const ciranda_status status = ciranda_run(world.get(), &request, &made);
  const native::Operation operation(made);
  if (status == CIRANDA_MISMATCH) communicator.forget(signature);
  if (status != CIRANDA_OK) throw Failure{native::failure_of(operation)};
  if (operation && ciranda_operation_outputs_count(made) > 0) throw Failure{"the ranks contribute different counts"};
}

std::int64_t counted(int count) {
  if (count >= 0) return count;
  throw Failure{"a count of " + std::to_string(count) +
                ": MPI counts no more than 2147483647 elements; use several, smaller arrays"};
}

}  // namespace ciranda::mpi
