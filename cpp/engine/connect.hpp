// connect: from settings to a running engine: read the secret, join the world, start the engine.
// Called by capi/worlds.cc as a world is joined; any thread, which it blocks.
#pragma once

#include <cstdint>
#include <memory>

#include "base/config.hpp"
#include "base/status.hpp"
#include "engine/engine.hpp"

namespace ciranda {

// Blocks until all config.size ranks have connected. After config.start_timeout_seconds it returns Timeout and names
// the missing ranks. A world of one rank needs neither store nor secret. `epoch` counts the worlds of this job: all
// ranks must pass the same value, and a new one each time they connect again. REQUIRES: this process has no other
// engine of this job and epoch. `may_others_call`: see Engine::create().
// `interrupted` is called several times a second during the wait; if it returns true, connect() returns Aborted.
Result<std::unique_ptr<Engine>> connect(const Config& config, std::uint64_t epoch,
                                        const Engine::Interrupted& interrupted = nullptr,
                                        MayOthersCall may_others_call = nullptr);

}  // namespace ciranda
