// The shared library that `ciranda.tensorflow` opens.
#include <ciranda/native/call.hpp>
#include <ciranda/native/looks.hpp>
#include <ciranda/native/plugin.hpp>
#include <cstdio>
#include <string>

#include "bindings/tensorflow/ops.hpp"
#include "bindings/tensorflow/tf_api.hpp"
#include "bindings/tensorflow/xla.hpp"

CIRANDA_DEFINE_TABLE
CIRANDA_DEFINE_LOOKS

namespace {

// The reason why collectives in programs compiled by XLA are not available, or "". All else works without XLA.
std::string& xla_problem() {
  static std::string problem;
  return problem;
}

}  // namespace

ciranda_status ciranda_plugin_open(const ciranda_table* table, const char* framework_version, char* message,
                                   size_t message_capacity) {
  const ciranda_status status = ciranda_use_table(table, message, message_capacity);
  if (status != CIRANDA_OK) return status;
  std::string problem = ciranda::tensorflow::find_tf_api(framework_version);
  if (problem.empty()) problem = ciranda::tensorflow::register_ops();
  if (problem.empty()) xla_problem() = ciranda::tensorflow::register_xla_calls(framework_version);
  std::snprintf(message, message_capacity, "%s", problem.c_str());
  return problem.empty() ? CIRANDA_OK : CIRANDA_INVALID_ARGUMENT;
}

extern "C" CIRANDA_API const char* ciranda_tensorflow_xla_problem() { return xla_problem().c_str(); }

int64_t ciranda_plugin_live_calls() { return ciranda::native::live_calls(); }
