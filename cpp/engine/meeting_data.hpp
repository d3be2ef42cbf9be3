// What a rank contributes to a meeting, and what it makes of what all have contributed. negotiate/meeting_places.hpp
// says how that lies in memory.
//
// One thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "engine/in_flight.hpp"
#include "fuse/plan.hpp"
#include "request/call.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// A member reads what is its own where its caller has it, so rows that nobody else needs are not written.
// REQUIRES, here and below: there is room for it.
void contribute_to_meeting(const Request& request, const Mesh& mesh, std::byte* to);
void contribute_to_meeting(const Call& call, const Mesh& mesh, std::byte* to);

// Carries the request out, and gives its operation the outputs. `contributed`: by each member; by the root alone, where
// there is one. `first_dims`: null where they cannot differ. Not ok: there is no memory for the result.
Status carry_out_meeting(const InFlight::Entry& entry, const FirstDims* first_dims,
                         std::vector<const std::byte*> contributed, const Mesh& mesh, const OutputMemory& memory);
// REQUIRES: there is memory for its result; what it has contributed itself is its input.
void carry_out_meeting(const Call& call, std::byte* output, const FirstDims* first_dims,
                       std::span<const std::byte*> contributed, const Mesh& mesh);

}  // namespace ciranda
