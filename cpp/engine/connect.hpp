// connect: from settings to a running engine: read the secret, join the world, start the engine.
#pragma once

#include <cstdint>
#include <memory>

#include "base/config.hpp"
#include "base/status.hpp"
#include "engine/engine.hpp"

namespace ciranda {

// Blocks until all config.size ranks have come (or config.start_timeout_seconds: Timeout, naming the missing ranks).
// A size of one needs neither store nor secret. `epoch` counts the worlds of this job: all ranks must pass the same
// value, and a new one each time they connect again. REQUIRES: no other engine of this job and epoch in this process.
// `may_others_call`: see Engine::create().
// `interrupted` is asked several times a second while others are waited for; true gives up, with Aborted.
Result<std::unique_ptr<Engine>> connect(const Config& config, std::uint64_t epoch,
                                        const Engine::Interrupted& interrupted = nullptr,
                                        MayOthersCall may_others_call = nullptr);

}  // namespace ciranda
