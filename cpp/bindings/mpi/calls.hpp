// calls: submits one request to the engine for each call of MPI.
//
// Threads: any. A call blocks its thread, which runs the progress loop meanwhile.
// Failure: throws Failure, with the engine's message.
//
// Called by collectives.cc, communicators.cc, messages.cc and session.cc.
#pragma once

#include <ciranda/table.h>

#include <array>
#include <cstdint>

#include "bindings/mpi/communicator.hpp"

namespace ciranda::mpi {

// One tensor of `rows` rows of `columns` elements each.
class Tensor {
 public:
  Tensor(const void* input, void* output, ciranda_dtype dtype, std::int64_t rows, std::int64_t columns = 1);
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  const ciranda_tensor& get() const { return tensor_; }
  std::int64_t count() const { return shape_[0] * shape_[1]; }

 private:
  const std::array<std::int64_t, 2> shape_;
  const ciranda_tensor tensor_;
};

ciranda_request request_of(ciranda_collective collective);

// Executes the request in the communicator. `kind` distinguishes calls that differ in other than collective and tensor.
void run(Communicator& communicator, ciranda_request request, const Tensor& tensor, std::int64_t kind = 0,
         bool is_split = false);

// Returns MPI's count, a signed 32-bit number. Throws Failure if it is negative.
std::int64_t counted(int count);

}  // namespace ciranda::mpi
