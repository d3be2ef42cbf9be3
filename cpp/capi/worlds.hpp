// worlds: the worlds of this process, and the references to them. All bindings join, find and leave worlds here, so
// that they share one world.
//
// Only one copy of the library in a process may be in a world: if another copy is, this one refuses to join. (One copy
// may be in several worlds, for instance in tests whose ranks are threads.)
//
// Threads: any. Ownership: a context is freed with its last reference; while it is open, one reference is kept here. A
// child after fork() starts without contexts, and must not touch its parent's.
//
// Called by context.cc, Session (leave() alone) and EngineHandle; other_engines.cc defines refuse_other_engines(),
// which join_world() alone calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/config.hpp"
#include "base/exported.hpp"
#include "base/status.hpp"
#include "capi/handles.hpp"
#include "engine/engine.hpp"

namespace ciranda::capi {

// Connects (see connect()). Returns the context, which is then the current one, with a reference. Without `epoch`, uses
// the number after the highest that this process has tried. `slot`: in a world of several ranks, it is kept until the
// world is left (capi/kept_slot.hpp); empty: no slot is kept. REQUIRES: why_taken(slot) is empty.
CIRANDA_EXPORTED Result<ciranda_context*> join_world(Config config, std::optional<std::uint64_t> epoch,
                                                     const std::string& slot,
                                                     const Engine::Interrupted& interrupted = nullptr);

// The open world that was joined last, with a reference; null if no world is open.
CIRANDA_EXPORTED ciranda_context* current();

void retain(ciranda_context& context);
void release(ciranda_context& context);

// Ends the world for all holders of a reference, and releases one reference. A second caller does not wait for the
// first.
CIRANDA_EXPORTED void leave(ciranda_context& context);
// Whether leave() warns of references that were not released, as debug builds do.
bool warns_of_references_left();

// The number of worlds that are open or being joined.
std::size_t n_worlds();

// The epoch that join_world() uses next if it is given none.
CIRANDA_EXPORTED std::uint64_t next_epoch();

// Returns InvalidArgument, with the file of the other copy, if another copy of the library in this process has joined a
// world. Copies do not share names, errors or shutdown(), so their ranks would wait for each other for ever. Finds
// copies that were preloaded, linked with the program, or loaded by dlopen() with RTLD_LOCAL.
Status refuse_other_engines();

}  // namespace ciranda::capi
