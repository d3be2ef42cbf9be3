#include "observe/call_log.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include "observe/ticks.hpp"

namespace ciranda {
namespace {

// Bounds the memory where names are never used again.
constexpr std::size_t kMostNames = 65536;
// Bounds it where steps have no calls.
constexpr std::size_t kMostSteps = 65536;

std::string microseconds(std::int64_t ns) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f us", static_cast<double>(std::max<std::int64_t>(ns, 0)) * 1e-3);
  return text.data();
}

// How the ranks agree by this path. Paths that alternate, depending on which rank comes last, have the same text.
std::string_view agreement_by(Path path) {
  switch (path) {
    case Path::kDirect:
    case Path::kRepeated:
    case Path::kInMemory: return "a direct round in shared memory";
    case Path::kByMessages: return "a direct round by messages";
    case Path::kPlan: return "the log";
    case Path::kNone: break;
  }
  return "";
}

// "allreduce 'grad' of process set 2, lane 1".
std::string call_of(const Record& record) {
  std::string text = std::string(to_string(record.collective)) + " '" + record.name + "'";
  if (record.process_set != 0) text += " of process set " + std::to_string(record.process_set);
  if (record.lane != 0) text += (record.process_set != 0 ? ", lane " : " of lane ") + std::to_string(record.lane);
  return text;
}

std::string text_of(const Record& record) {
  std::string text = call_of(record) + ": " + std::to_string(record.n_bytes) + " bytes";
  if (record.dtype) text += " of " + std::string(to_string(*record.dtype));
  if (record.path != Path::kNone) text += " by " + std::string(to_string(record.path));
  if (!record.algorithm.empty()) text += " (" + std::string(record.algorithm) + ")";
  text += " in " + microseconds(record[Stage::kDone] - record[Stage::kSubmitted]);
  if (const std::int64_t agreed = record[Stage::kAgreed]; agreed != 0 && record.path != Path::kDirect) {
    text += ", agreed after " + microseconds(agreed - record[Stage::kSubmitted]);
  }
  if (record.outcome != ErrorKind::kOk) text += ", failed: " + std::string(to_string(record.outcome));
  return text;
}

// `at_ns`: by the records' clock. Returns microseconds since the epoch.
std::int64_t time_of_day(std::int64_t at_ns) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return (std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - (monotonic_ns() - at_ns)) / 1000;
}

}  // namespace

CallLog::CallLog(std::shared_ptr<Recorder> recorder, Logger logger)
    : logger_(std::move(logger)),
      reader_(std::move(recorder),
              {.take = [this](const Record& record, std::uint64_t n_lost) { write(record, n_lost); }}) {}

void CallLog::count_step() {
  const std::lock_guard lock(mutex_);
  steps_after_.push_back(monotonic_ns());
  if (steps_after_.size() <= kMostSteps) return;
  steps_after_.pop_front();
  ++n_steps_;
}

void CallLog::write(const Record& record, std::uint64_t n_lost) {
  const std::int64_t at_ns = std::max(record[Stage::kSubmitted], record[Stage::kDone]);
  const std::int64_t at_us = time_of_day(at_ns);
  const std::uint64_t n_steps = n_steps_at(at_ns);
  log_other_path(record, at_us, n_steps);
  if (!logger_.is_on(LogLevel::kTrace)) return;
  if (n_lost > 0) {
    logger_.past(LogLevel::kTrace, at_us, n_steps,
                 std::to_string(n_lost) + " calls are missing here: they completed faster than they could be written");
  }
  logger_.past(LogLevel::kTrace, at_us, n_steps, text_of(record));
}

void CallLog::log_other_path(const Record& record, std::int64_t at_us, std::uint64_t n_steps) {
  const std::string_view agreement = agreement_by(record.path);
  if (agreement.empty()) return;
  if (agreements_.size() >= kMostNames) agreements_.clear();
  const std::string call = call_of(record);
  const std::string_view before = std::exchange(agreements_.try_emplace(call, agreement).first->second, agreement);
  if (before == agreement) return;
  logger_.past(LogLevel::kDebug, at_us, n_steps,
               call + " goes by " + std::string(agreement) + ", before by " + std::string(before));
}

// Records come in the order in which calls completed.
std::uint64_t CallLog::n_steps_at(std::int64_t at_ns) {
  const std::lock_guard lock(mutex_);
  for (; !steps_after_.empty() && steps_after_.front() < at_ns; ++n_steps_) steps_after_.pop_front();
  return n_steps_;
}

}  // namespace ciranda
