#include "checker.hpp"

#include <cstdio>
#include <string>

#include "report.hpp"
#include "settings.hpp"

namespace ciranda::fakes {
namespace {

std::string text_of(std::uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "%#lx", static_cast<unsigned long>(address));
  return text;
}

std::string verb(bool writes) { return writes ? " writes " : " reads "; }

std::string text_of(const Touch& touch) {
  return verb(touch.writes) + std::to_string(touch.n_bytes) + " bytes at " +
         text_of(reinterpret_cast<std::uintptr_t>(touch.begin));
}

[[noreturn]] void report_outside(const Use& use, const Touch& touch, const Range* range) {
  std::string why = ", where nothing is allocated";
  if (range != nullptr) {
    why = ", beyond the " + std::to_string(range->n_bytes) + " bytes at " + text_of(range->begin) + " of " +
          range->origin;
  } else if (const auto how = address_map().end_of(touch.begin)) {
    why = ", after their end by " + *how;
  }
  report("use of memory that is not there:\n  " + use.what + text_of(touch) + why);
}

[[noreturn]] void report_unordered(const std::string& later, const Conflict& earlier, const Range& range) {
  report("two uses of memory that nothing orders:\n  " + earlier.earlier->what + verb(earlier.earlier_writes) +
         "it,\n  " + later + " it: bytes " + std::to_string(earlier.begin) + " to " + std::to_string(earlier.end) +
         " of " + std::to_string(range.n_bytes) + " at " + text_of(range.begin) + " (" + range.origin + ")");
}

}  // namespace

const VectorClock& Checker::known_here() {
  VectorClock& known = of_this_thread();
  known.join(by_all_);
  return known;
}

VectorClock& Checker::of_this_thread() {
  return settings()->are_threads_apart ? by_thread_[std::this_thread::get_id()] : by_all_;
}

CUresult Checker::touch(const UseOf& use, std::span<const Touch> touches, const VectorClock& before) {
  const bool checks = settings()->checks;
  for (const Touch& each : touches) {
    if (each.n_bytes == 0) continue;
    const auto range = address_map().find(each.begin);
    const auto begin = reinterpret_cast<std::uintptr_t>(each.begin);
    if (range == nullptr || each.n_bytes > range->end() - begin) {
      if (!checks) return CUresult::kIllegalAddress;
      report_outside(*use, each, range.get());
    }
    if (checks) touch(use, each, *range, before);
  }
  return CUresult::kSuccess;
}

void Checker::touch(const UseOf& use, const Touch& touch, Range& range, const VectorClock& before) {
  const std::size_t begin = reinterpret_cast<std::uintptr_t>(touch.begin) - range.begin;
  const std::size_t end = begin + touch.n_bytes;
  if (const auto conflict = range.shadow->touch(use, begin, end, touch.writes, before)) {
    report_unordered(use->what + (touch.writes ? " writes" : " reads"), *conflict, range);
  }
  if (range.pages != nullptr) range.pages->hold(use, begin, end, touch.writes);
}

void Checker::learn(const VectorClock& clock) {
  const std::lock_guard lock(mutex_);
  of_this_thread().join(clock);
  by_anyone_.join(clock);
  release_pages();
}

void Checker::publish(const VectorClock& clock) {
  const std::lock_guard lock(mutex_);
  by_all_.join(clock);
  by_anyone_.join(clock);
  release_pages();
}

void Checker::release_pages() {
  address_map().for_each([this](Range& range) {
    if (range.pages != nullptr) range.pages->release(by_anyone_);
  });
}

void Checker::end(const Range& range, const char* call) {
  const std::lock_guard lock(mutex_);
  if (!settings()->checks) return;
  const auto conflict = range.shadow->find_unordered(known_here());
  if (conflict) report_unordered(std::string(call) + " frees", *conflict, range);
}

Checker& checker() {
  static auto* const kept = new Checker;  // outlives the threads of the streams
  return *kept;
}

}  // namespace ciranda::fakes
