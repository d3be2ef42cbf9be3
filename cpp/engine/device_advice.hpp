// Advice where all ranks of a host seem to use its first GPU though it has others: most often a program has forgotten
// to choose one. Only for calls that are staged: no message is exchanged, as only some ranks may have tensors on a GPU,
// so one rank of the world decides by what it knows itself. Ranks that exchange tensors by peer compare their GPUs'
// UUIDs (Backend::advice). Pure.
//
// Called by Engine, at the first call of the process with a tensor on a device.
#pragma once

#include <string>

#include "backend/device.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// Returns the advice if this rank is the one to give it, and has reason to; else an empty text. `place`: that of one of
// its tensors.
std::string device_advice(const Mesh& mesh, const Place& place, Device& device);

}  // namespace ciranda
