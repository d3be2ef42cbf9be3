#include "membership/compare_settings.hpp"

namespace ciranda {
namespace {

std::string text_of(const std::string& value) { return "'" + value + "'"; }
template <typename Number>
std::string text_of(Number value) {
  return std::to_string(value);
}

}  // namespace

Status compare_settings(const CommonSettings& here, const CommonSettings& there, const std::string& name) {
  Status status;
  for_each_common_setting([&](const std::string& what, auto setting) {
    if (!status.ok() || here.*setting == there.*setting) return;
    status = Status::mismatch(what + " is " + text_of(here.*setting) + " here but " + text_of(there.*setting) + " on " +
                              name + ": set it to the same value on all ranks");
  });
  return status;
}

}  // namespace ciranda
