// Outputs: memory for the results of one request, which the engine allocates or the caller has given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "complete/operation.hpp"
#include "request/request.hpp"

namespace ciranda {

struct Outputs {
  std::vector<OutputBuffer> buffers;
  std::vector<std::byte*> memory;  // of each tensor

  // For the next tensor. `given`: the caller's, as large as `whole`.
  void give(std::byte* given, const TensorSignature& whole) {
    memory.push_back(given);
    buffers.push_back({std::shared_ptr<std::byte>(std::shared_ptr<std::byte>(), given), whole.n_bytes(), whole.shape});
  }

  // One for each tensor, of n_rows[tensor] rows.
  Status allocate(const OutputMemory& from, const Request& request, const std::vector<std::int64_t>& n_rows, int rank) {
    for (std::size_t i = 0; i < n_rows.size(); ++i) {
      TensorSignature whole = request.signature.tensors[i];
      whole.shape.front() = n_rows[i];
      buffers.push_back(from.allocate(whole.n_bytes(), whole.shape));
      if (!buffers.back().data) {
        return Status::internal("rank " + std::to_string(rank) + " has no memory for the result of " +
                                std::string(to_string(request.signature.collective)) + " '" + request.name + "', " +
                                std::to_string(whole.n_bytes()) + " bytes");
      }
      memory.push_back(buffers.back().data.get());
    }
    return Status::ok_status();
  }
};

// None if the numbers, which may have come over the network, are no numbers of rows, or too many.
inline std::optional<std::int64_t> sum_of_rows(const std::vector<std::int64_t>& rows) {
  constexpr std::int64_t kMaxRows = std::int64_t{1} << 56;
  std::int64_t sum = 0;
  for (const std::int64_t each : rows) {
    if (each < 0 || each > kMaxRows - sum) return std::nullopt;
    sum += each;
  }
  return sum;
}

}  // namespace ciranda
