// context: ciranda_init() to ciranda_shutdown(), facts about the ranks, and references to contexts.
#include <algorithm>
#include <optional>
#include <string>

#include "base/other_launchers.hpp"
#include "capi/callers.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/kept_slot.hpp"
#include "capi/translate.hpp"
#include "capi/worlds.hpp"
#include "ciranda/ciranda.h"

namespace ciranda::capi {
namespace {

// Refuses names of settings that do not exist: a misspelt setting would otherwise be ignored without notice.
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

// The program's slot. Empty if its own settings give it another slot than the environment: programs that it starts do
// not inherit these settings.
std::string inheritable_slot(const GetEnv& get_env) {
  const std::string slot = slot_of(get_env);
  return slot == slot_of(environment()) ? slot : std::string();
}

Result<ciranda_context*> init(const ciranda_options* from) {
  Result<Options> options = translate(from);
  if (!options.ok()) return options.status();
  if (Status status = check_names(options.value()); !status.ok()) return status;
  const GetEnv get_env = environment_behind(options.value().settings);
  const std::string slot = inheritable_slot(get_env);
  if (const std::string why = why_taken(slot); !why.empty()) return Status::invalid_argument("ciranda_init: " + why);
  Result<Config> config = read_config(get_env);
  if (!config.ok()) return config.status();
  if (Status status = refuse_one_by_accident(get_env); !status.ok()) return status;
  const std::uint64_t epoch = options.value().epoch;
  return join_world(std::move(config).value(), epoch == CIRANDA_EPOCH_AUTO ? std::nullopt : std::optional(epoch), slot);
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
  ciranda::capi::note_native_callers();
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

ciranda_status ciranda_shutdown(ciranda_context* context) noexcept {
  if (context == nullptr) return CIRANDA_OK;
  return ciranda::capi::guarded([&] {
    const ciranda::Status may = ciranda::Engine::may("shut down");
    if (may.ok()) ciranda::capi::leave(*context);
    return static_cast<ciranda_status>(may.kind());
  });
}

ciranda_context* ciranda_current(void) noexcept {
  ciranda_context* found = nullptr;
  ciranda::capi::note_native_callers();
  ciranda::capi::guarded([&] {
    found = ciranda::capi::current();
    return CIRANDA_OK;
  });
  return found;
}

void ciranda_context_retain(ciranda_context* context) noexcept {
  if (context != nullptr) ciranda::capi::retain(*context);
}

void ciranda_context_release(ciranda_context* context) noexcept {
  if (context != nullptr) ciranda::capi::release(*context);
}

int ciranda_context_is_open(const ciranda_context* context) noexcept {
  return context != nullptr && !context->is_left ? 1 : 0;
}

size_t ciranda_contexts_count(void) noexcept {
  size_t count = 0;
  ciranda::capi::guarded([&] {
    count = ciranda::capi::n_worlds();
    return CIRANDA_OK;
  });
  return count;
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

ciranda_status ciranda_form_process_set(ciranda_context* context, const int32_t* ranks, size_t ranks_count,
                                        uint32_t nth, uint32_t* process_set, char* message,
                                        size_t message_capacity) noexcept {
  using ciranda::capi::copy_message;
  copy_message("", message, message_capacity);
  if (process_set != nullptr) *process_set = 0;
  if (context == nullptr || process_set == nullptr || ranks == nullptr) {
    copy_message("ciranda_form_process_set: context, ranks or process_set is NULL", message, message_capacity);
    return CIRANDA_INVALID_ARGUMENT;
  }
  return ciranda::capi::guarded([&] {
    const auto formed = context->engine->form_set(std::vector<int>(ranks, ranks + ranks_count), nth);
    if (formed.ok()) *process_set = formed.value();
    copy_message(formed.status().message(), message, message_capacity);
    return static_cast<ciranda_status>(formed.status().kind());
  });
}

uint32_t ciranda_pair(const ciranda_context* context, int32_t peer) noexcept {
  return context == nullptr ? 0 : context->engine->pair_with(peer);
}

}  // extern "C"
