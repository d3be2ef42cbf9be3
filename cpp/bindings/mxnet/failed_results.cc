#include "bindings/mxnet/failed_results.hpp"

#include <algorithm>
#include <optional>

namespace ciranda::mxnet {

namespace {

// Shares ownership of the array's memory (memory_of()).
std::shared_ptr<void> shared_memory_of(ArrayHandle array) { return *static_cast<const std::shared_ptr<void>*>(array); }

}  // namespace

FailedResults& failed_results() {
  static FailedResults* const it = new FailedResults;  // never freed: calls may fail while the process ends
  return *it;
}

void FailedResults::add(ArrayHandle array, const std::string& message) {
  // The naive engine counts an operation when it begins, and does not propagate errors.
  note(array, message, is_naive() ? 0 : 1, is_naive());
}

void FailedResults::add_left_out(ArrayHandle array, const std::string& message) { note(array, message, 0, false); }

void FailedResults::add_raised(ArrayHandle array, const std::string& message) { note(array, message, 0, true); }

void FailedResults::raised(const std::string& text) {
  const std::lock_guard guard(lock_);
  for (auto& [at, failed] : failed_) {
    const std::shared_ptr<void> memory = failed.memory.lock();
    const bool is_concerned = text.empty() || text.find(failed.message) != std::string::npos;
    if (failed.is_raised || !is_concerned || !memory) continue;
    // The error may be raised for one array of an operation before MXNet has counted the writes to the others.
    failed.version = std::max(failed.version, version_of(&memory).value_or(0));
    failed.is_raised = true;
  }
}

void FailedResults::note(ArrayHandle array, const std::string& message, std::size_t n_more_writes, bool is_raised) {
  const std::optional<std::size_t> version = version_of(array);
  if (!version) return;
  const std::lock_guard guard(lock_);
  if (failed_.size() >= most_) forget_the_gone();
  failed_[memory_of(array)] = {shared_memory_of(array), *version + n_more_writes, message, is_raised};
}

std::string FailedResults::message_of(ArrayHandle array) {
  const std::lock_guard guard(lock_);
  const auto found = find(array);
  if (found == failed_.end()) return "";
  if (version_of(array) == found->second.version) return found->second.message;
  failed_.erase(found);
  return "";
}

FailedResults::All::iterator FailedResults::find(ArrayHandle array) {
  const auto found = failed_.find(memory_of(array));
  const bool is_it = found != failed_.end() && found->second.memory.lock() == shared_memory_of(array);
  return is_it ? found : failed_.end();  // otherwise the entry is of an earlier array at this address
}

void FailedResults::forget_the_gone() {
  std::erase_if(failed_, [](const auto& each) { return each.second.memory.expired(); });
  most_ = std::max<std::size_t>(64, 2 * failed_.size());
}

}  // namespace ciranda::mxnet
