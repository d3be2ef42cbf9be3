// context: ciranda_init() to ciranda_shutdown(), and who is who.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/translate.hpp"
#include "ciranda/ciranda.h"
#include "engine/connect.hpp"

namespace ciranda::capi {
namespace {

// What CIRANDA_EPOCH_AUTO counts: not state of the library, but the number of calls in this process.
std::uint64_t next_epoch() {
  static std::atomic<std::uint64_t> count{0};
  return count.fetch_add(1, std::memory_order_relaxed);
}

GetEnv settings_before_environment(const Options& options) {
  return [&options](const std::string& variable) -> std::optional<std::string> {
    for (const auto& [name, value] : options.settings) {
      if (name == variable) return value;
    }
    const char* value = std::getenv(variable.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

// A misspelt setting would otherwise be ignored in silence.
Status check_names(const Options& options) {
  for (const auto& entry : options.settings) {
    bool is_known = false;
    for (const Setting& setting : settings()) {
      is_known = is_known || entry.first == "CIRANDA_" + std::string(setting.name) ||
                 (!setting.horovod_name.empty() && entry.first == setting.horovod_name);
    }
    if (!is_known) return Status::invalid_argument("ciranda_options: there is no setting " + entry.first);
  }
  return Status::ok_status();
}

Result<ciranda_context*> init(const ciranda_options* from) {
  Result<Options> options = translate(from);
  if (!options.ok()) return options.status();
  if (Status status = check_names(options.value()); !status.ok()) return status;
  Result<Config> config = read_config(settings_before_environment(options.value()));
  if (!config.ok()) return config.status();
  const std::uint64_t epoch = options.value().epoch;
  auto engine = connect(config.value(), epoch == CIRANDA_EPOCH_AUTO ? next_epoch() : epoch);
  if (!engine.ok()) return engine.status();
  auto context = std::make_unique<ciranda_context>();
  context->config = std::move(config).value();
  context->engine = std::move(engine).value();
  return context.release();
}

void copy_message(std::string_view from, char* to, std::size_t capacity) {
  if (to == nullptr || capacity == 0) return;
  const std::size_t n_bytes = std::min(from.size(), capacity - 1);
  std::memcpy(to, from.data(), n_bytes);
  to[n_bytes] = '\0';
}

std::int32_t narrow(std::int64_t value) { return static_cast<std::int32_t>(value); }

}  // namespace
}  // namespace ciranda::capi

extern "C" {

ciranda_status ciranda_init(const ciranda_options* options, ciranda_context** context, char* message,
                            size_t message_capacity) noexcept {
  using ciranda::capi::copy_message;
  copy_message("", message, message_capacity);
  if (context == nullptr) {
    copy_message("ciranda_init: context is NULL", message, message_capacity);
    return CIRANDA_INVALID_ARGUMENT;
  }
  *context = nullptr;
  return ciranda::capi::guarded([&] {
    auto result = ciranda::capi::init(options);
    if (result.ok()) {
      *context = result.value();
    } else {
      copy_message(result.status().message(), message, message_capacity);
    }
    return static_cast<ciranda_status>(result.status().kind());
  });
}

void ciranda_shutdown(ciranda_context* context) noexcept {
  const std::unique_ptr<ciranda_context> owned(context);
  if (owned) owned->engine->shutdown();
}

int32_t ciranda_rank(const ciranda_context* context) noexcept {
  return context == nullptr ? -1 : context->engine->rank();
}

int32_t ciranda_size(const ciranda_context* context) noexcept {
  return context == nullptr ? -1 : context->engine->size();
}

int32_t ciranda_local_rank(const ciranda_context* context) noexcept {
  return context == nullptr ? -1 : ciranda::capi::narrow(context->config.local_rank);
}

int32_t ciranda_local_size(const ciranda_context* context) noexcept {
  return context == nullptr ? -1 : ciranda::capi::narrow(context->config.local_size);
}

int32_t ciranda_cross_rank(const ciranda_context* context) noexcept {
  return context == nullptr ? -1 : ciranda::capi::narrow(context->config.cross_rank);
}

int32_t ciranda_cross_size(const ciranda_context* context) noexcept {
  return context == nullptr ? -1 : ciranda::capi::narrow(context->config.cross_size);
}

const char* ciranda_host_of(const ciranda_context* context, int32_t rank) noexcept {
  if (context == nullptr || rank < 0 || rank >= context->engine->size()) return nullptr;
  return context->engine->peer(rank).host.c_str();
}

size_t ciranda_process_set_ranks(const ciranda_context* context, uint32_t process_set, int32_t* ranks,
                                 size_t capacity) noexcept {
  if (context == nullptr) return 0;
  size_t n_ranks = 0;
  ciranda::capi::guarded([&] {
    const std::vector<int> all = context->engine->ranks_of(process_set);
    n_ranks = all.size();
    if (ranks != nullptr) std::copy_n(all.begin(), std::min(capacity, n_ranks), ranks);
    return CIRANDA_OK;
  });
  return n_ranks;
}

uint32_t ciranda_pair(const ciranda_context* context, int32_t peer) noexcept {
  return context == nullptr ? 0 : context->engine->pair_with(peer);
}

}  // extern "C"
