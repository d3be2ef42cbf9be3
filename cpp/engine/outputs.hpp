// Outputs: memory for the results of one request, which the engine allocates or the caller has given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "complete/output_memory.hpp"
#include "fuse/plan.hpp"
#include "request/request.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

struct Outputs {
  std::vector<OutputBuffer> buffers;  // what the operation gives its owner
  std::vector<std::byte*> memory;     // of each tensor

  // For the next tensor. `given`: the caller's, as large as `whole`.
  void give(std::byte* given, const TensorSignature& whole);
  // One for each tensor, of n_rows[tensor] rows.
  Status allocate(const OutputMemory& from, const Request& request, const std::vector<std::int64_t>& n_rows,
                  const Mesh& mesh);
  // An alltoall's, behind the tensors: how many rows came from each rank.
  void add_received_splits(const FirstDims& rows_from);
};

// None if the numbers, which may have come over the network, are no numbers of rows, or too many.
std::optional<std::int64_t> sum_of_rows(const std::vector<std::int64_t>& rows);

// The caller's memory, where results are as large as inputs.
Outputs outputs_given(const Request& request);
// REQUIRES: first dimensions that have sums.
Result<Outputs> outputs_of_gather(const Request& request, const FirstDims& first_dims, const Mesh& mesh,
                                  const OutputMemory& memory);
Result<Outputs> outputs_of_reducescatter(const Request& request, const Mesh& mesh, const OutputMemory& memory);
// REQUIRES: keeps_rows(request).
Outputs outputs_of_even_exchange(const Request& request);

}  // namespace ciranda
