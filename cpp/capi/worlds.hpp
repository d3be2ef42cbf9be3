// worlds: the worlds that this process is in, and who refers to them. Every binding joins, finds and leaves them
// here, so that all of them are in the same one.
//
// There is one engine in a process: where another copy of the library is in a world, this one refuses to join. (One
// copy may be in several worlds, as tests are whose ranks are threads.)
//
// Threads: any. Ownership: a context is freed with its last reference; while it is open one is kept here. In a child
// after fork() there are none: its parent's contexts must not be touched there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/config.hpp"
#include "base/status.hpp"
#include "capi/handles.hpp"
#include "engine/engine.hpp"

namespace ciranda::capi {

// Connects (see connect()); the context is then the current one, and comes with a reference. Without an epoch: the
// number after the highest that this process has tried. `place`: in a world of several ranks it is kept until that is
// left (capi/kept_place.hpp); empty: none is. REQUIRES: why_taken(place) says nothing.
Result<ciranda_context*> join_world(Config config, std::optional<std::uint64_t> epoch, const std::string& place,
                                    const Engine::Interrupted& interrupted = nullptr);

// The world that was joined last of those that are open, with a reference; null without one.
ciranda_context* current();

void retain(ciranda_context& context);
void release(ciranda_context& context);

// Ends the world for all who refer to it, and gives back a reference. Whoever comes second does not wait for the
// first.
void leave(ciranda_context& context);
// Whether leave() warns of references that were forgotten, as builds to look for mistakes in do.
bool tells_references_left();

// Those that are open or being joined.
std::size_t n_worlds();

// What join_world() takes next, without an epoch.
std::uint64_t next_epoch();

// InvalidArgument, with the file of the other copy, if another copy of the library in this process has joined a world:
// names, errors and shutdown() of one mean nothing to the other, and their ranks wait for each other for ever. However
// it was loaded: preloaded, by a program that is linked with it, or by dlopen() with RTLD_LOCAL.
Status refuse_other_engines();

}  // namespace ciranda::capi
