// What a rank contributes to a direct round in memory, and what it makes of what all have contributed.
// negotiate/round_places.hpp says how that lies in memory, engine/direct_tensor.hpp what is made of one tensor.
//
// One thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <vector>

#include "base/copy_bytes.hpp"
#include "base/status.hpp"
#include "engine/direct_tensor.hpp"
#include "engine/in_flight.hpp"
#include "fuse/plan.hpp"
#include "request/call.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// `rows_of`: each member's; null where they cannot differ.
DirectTensor tensor_of(const Call& call, const std::vector<std::int64_t>* rows_of, const Mesh& mesh);

// REQUIRES: there is room for it.
void contribute_to_round(const Request& request, const Mesh& mesh, std::byte* to, StagingCopy how);

// Carries the request out, and gives its operation the outputs. `first_dims`: null where they cannot differ.
// `contributed`: by each member; by the root alone, where there is one. Not ok: there is no memory for the result.
Status carry_out_round(const InFlight::Entry& entry, const FirstDims* first_dims,
                       std::vector<const std::byte*> contributed, const Mesh& mesh, const OutputMemory& memory);

}  // namespace ciranda
