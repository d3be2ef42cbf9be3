#include "capi/references_left.hpp"

#include <chrono>
#include <string>
#include <thread>

#include "base/log.hpp"

namespace ciranda::capi {
namespace {

std::size_t n_left(const ciranda_context& context) {
  const std::size_t n_expected = 1 + context.n_sessions.load();
  const std::size_t n_references = context.n_references.load();
  return n_references > n_expected ? n_references - n_expected : 0;
}

}  // namespace

void tell_references_left(const ciranda_context& context) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPatience = std::chrono::milliseconds(100);
  const auto give_up = Clock::now() + kPatience;
  while (n_left(context) > 0 && Clock::now() < give_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::size_t n_forgotten = n_left(context);
  if (n_forgotten == 0) return;
  const Logger logger(context.engine->rank(), log_level_from(context.config.log_level));
  logger.warning("ciranda_shutdown: " + std::to_string(n_forgotten) +
                 " more references to the context are held than there are users: every ciranda_current() and "
                 "ciranda_context_retain() needs a ciranda_context_release(), else the engine's memory stays");
}

bool tells_references_left() { return true; }

}  // namespace ciranda::capi
