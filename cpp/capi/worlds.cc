#include "capi/worlds.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/open_log.hpp"
#include "capi/callers.hpp"
#include "engine/connect.hpp"

namespace ciranda::capi {
namespace {

struct Worlds {
  std::mutex mutex;
  std::vector<ciranda_context*> open;  // in the order in which they were joined
  std::size_t n_being_joined = 0;
  std::uint64_t next_epoch = 0;
};

// One for the process: bindings that do not know each other have nothing else in common. Never freed, since threads may
// use it while the process ends. A child after fork() begins with a new one, whatever its parent's threads were doing.
Worlds& here() {
  static std::atomic<Worlds*> worlds{[] {
    pthread_atfork(nullptr, nullptr, [] { worlds.store(std::make_unique<Worlds>().release()); });
    return std::make_unique<Worlds>().release();
  }()};
  return *worlds.load();
}

// Counts a world from before it is joined, so that of two engines at least one sees the other.
class BeingJoined {
 public:
  explicit BeingJoined(Worlds& worlds) : worlds_(worlds) {
    const std::lock_guard lock(worlds_.mutex);
    ++worlds_.n_being_joined;
  }
  ~BeingJoined() {
    const std::lock_guard lock(worlds_.mutex);
    --worlds_.n_being_joined;
  }
  BeingJoined(const BeingJoined&) = delete;
  BeingJoined& operator=(const BeingJoined&) = delete;

  std::uint64_t take_epoch(std::optional<std::uint64_t> epoch) {
    const std::lock_guard lock(worlds_.mutex);
    const std::uint64_t taken = epoch.value_or(worlds_.next_epoch);
    worlds_.next_epoch = std::max(worlds_.next_epoch, taken + 1);
    return taken;
  }

  ciranda_context* open(Config config, std::unique_ptr<Engine> engine, const std::string& slot) {
    auto context = std::make_unique<ciranda_context>();
    if (engine->size() > 1 && !slot.empty()) context->slot = KeptSlot(engine->rank(), slot);
    context->config = std::move(config);
    context->engine = std::move(engine);
    context->n_references = 2;  // the caller's, and that of `open`
    const std::lock_guard lock(worlds_.mutex);
    worlds_.open.push_back(context.get());
    return context.release();
  }

 private:
  Worlds& worlds_;
};

std::size_t n_references_left(const ciranda_context& context) {
  const std::size_t n_expected = 1 + context.n_sessions.load();
  const std::size_t n_references = context.n_references.load();
  return n_references > n_expected ? n_references - n_expected : 0;
}

// Warns if, shortly after the world was left, there are more references than the caller's and those of bindings that
// keep one until they end. A reference that is never released keeps the engine's memory and connections. Calls that are
// under way release theirs soon, as everything fails now.
void warn_of_references_left(const ciranda_context& context) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPatience = std::chrono::milliseconds(100);
  constexpr auto kBetweenLooks = std::chrono::milliseconds(1);
  const auto give_up = Clock::now() + kPatience;
  while (n_references_left(context) > 0 && Clock::now() < give_up) std::this_thread::sleep_for(kBetweenLooks);
  const std::size_t n_forgotten = n_references_left(context);
  if (n_forgotten == 0) return;
  open_log_anyhow(context.config, context.engine->rank())
      .warning("ciranda_shutdown: " + std::to_string(n_forgotten) +
               " more references to the context are held than there are users: every ciranda_current() and "
               "ciranda_context_retain() needs a ciranda_context_release(), else the engine's memory stays");
}

}  // namespace

Result<ciranda_context*> join_world(Config config, std::optional<std::uint64_t> epoch, const std::string& slot,
                                    const Engine::Interrupted& interrupted) {
  BeingJoined being_joined(here());
  if (Status status = refuse_other_engines(); !status.ok()) return status;
  auto engine = connect(config, being_joined.take_epoch(epoch), interrupted, &others_may_call);
  if (!engine.ok()) return engine.status();
  return being_joined.open(std::move(config), std::move(engine).value(), slot);
}

ciranda_context* current() {
  Worlds& worlds = here();
  const std::lock_guard lock(worlds.mutex);
  if (worlds.open.empty()) return nullptr;
  retain(*worlds.open.back());
  return worlds.open.back();
}

void retain(ciranda_context& context) { context.n_references.fetch_add(1, std::memory_order_relaxed); }

void release(ciranda_context& context) {
  if (context.n_references.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const std::unique_ptr<ciranda_context> last(&context);
}

void leave(ciranda_context& context) {
  bool was_open = false;
  {
    Worlds& worlds = here();
    const std::lock_guard lock(worlds.mutex);
    was_open = std::erase(worlds.open, &context) > 0;
    context.is_left = true;
  }
  if (was_open) {
    context.slot.release();
    context.engine->shutdown();
    release(context);
    if (warns_of_references_left()) warn_of_references_left(context);
  }
  release(context);
}

bool warns_of_references_left() { return CIRANDA_TELLS_REFERENCES_LEFT; }

std::size_t n_worlds() {
  Worlds& worlds = here();
  const std::lock_guard lock(worlds.mutex);
  return worlds.open.size() + worlds.n_being_joined;
}

std::uint64_t next_epoch() {
  Worlds& worlds = here();
  const std::lock_guard lock(worlds.mutex);
  return worlds.next_epoch;
}

}  // namespace ciranda::capi
