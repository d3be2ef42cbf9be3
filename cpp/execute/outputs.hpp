// Outputs: memory for the results of one request, which the engine allocates or the caller has given; the same for a
// plan and for a direct round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "call/output_memory.hpp"
#include "call/request.hpp"
#include "execute/in_flight.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// None if the numbers, which may have come over the network, are no numbers of rows, or too many.
std::optional<std::int64_t> sum_of_rows(const std::vector<std::int64_t>& rows);

// Gives the operation what its owner is to get, and returns where the result of each tensor goes: nowhere, if this rank
// gets none. Behind the tensors of an alltoall whose splits travel the operation gets how many rows came from each
// rank. `rows_from`: [tensor][member], where rows are joined or split. Not ok: there is no memory, or the rows, which
// came over the network, cannot be.
Result<std::vector<std::byte*>> give_outputs(const Submission& entry, const FirstDims* rows_from, const Mesh& mesh,
                                             const OutputMemory& memory);

}  // namespace ciranda
