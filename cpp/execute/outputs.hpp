// Outputs: memory for the results of one request, allocated by the engine or given by the caller. Plans and direct
// rounds use it in the same way. Called by RoundsInMemory, exchange.cc, gather.cc and reducescatter.cc; one thread (the
// holder of the progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "call/output_memory.hpp"
#include "call/request.hpp"
#include "execute/in_flight.hpp"
#include "execute/work.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// The sum of numbers that may be from the network. None if a number is negative, or if the sum is too large.
std::optional<std::int64_t> sum_of_rows(const std::vector<std::int64_t>& rows);

// Sets the outputs of the operation, and returns where the result of each tensor must be written: null if this rank
// gets no result. After the tensors of an alltoall whose splits travel, the operation also gets the number of rows from
// each rank. `rows_from`: [tensor][member], if rows are joined or split. Returns an error if there is no memory, or if
// the numbers of rows, which came over the network, are invalid.
Result<std::vector<std::byte*>> give_outputs(const Submission& entry, const FirstDims* rows_from, const Mesh& mesh,
                                             const OutputMemory& memory);

// The work that `make` makes, once the outputs of the call are there: what it is given is from give_outputs(), or lies
// on the tensors' device, if the call works there, where it is allocated meanwhile. If there is no memory for a result
// there, the call fails on this rank, which takes part without outputs: `make` is given none. What `rows_from` points
// to must outlive the work.
using MakeWithOutputs = std::function<Result<Work>(const std::vector<std::byte*>& outputs)>;
Result<Work> work_with_outputs(Ticket ticket, InFlight& in_flight, const FirstDims* rows_from, const Mesh& mesh,
                               const MakeWithOutputs& make);

}  // namespace ciranda
