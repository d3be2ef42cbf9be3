#include "agree/negotiation.hpp"

#include <algorithm>
#include <utility>

#include "base/list_ranks.hpp"

namespace ciranda {

namespace {

constexpr std::size_t kMaxListed = 16;

std::string join_texts(const std::vector<std::string>& texts) {
  std::string out;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i != 0) out += ", ";
    if (i == kMaxListed) return out + "and " + std::to_string(texts.size() - i) + " more";
    out += texts[i];
  }
  return out;
}

}  // namespace

// --- a negotiation

// Members never withdraw from an open negotiation, so each member is examined once in each.
bool Negotiation::is_complete(const Members& members) {
  if (!members.has_any_joined()) return has_all();
  while (first_missing < members.size() && (has_arrived(first_missing) || members.has_joined(first_missing))) {
    ++first_missing;
  }
  return first_missing == members.size();
}

std::vector<std::int32_t> Negotiation::absent() const {
  std::vector<std::int32_t> absent;
  if (has_all()) return absent;
  for (std::size_t member = 0; member < arrivals.size(); ++member) {
    if (arrivals[member] == Arrival::kAbsent) absent.push_back(static_cast<std::int32_t>(member));
  }
  return absent;
}

void Negotiation::arrive(int member, Arrival arrival) {
  if (!has_arrived(member)) ++n_arrived;
  arrivals[static_cast<std::size_t>(member)] = arrival;
}

void Negotiation::close() {
  std::fill(arrivals.begin(), arrivals.end(), Arrival::kAbsent);
  in_full.clear();
  homes.clear();
  way.reset();
  n_arrived = first_missing = n_deferrable = n_urgent = 0;
  stage = Stage::kClosed;
}

void NameState::DeferredError::drop(int member) {
  n_calls_of_all -= std::exchange(n_calls[static_cast<std::size_t>(member)], std::uint8_t{0});
}

// --- the reports

const Signature& NameState::signature_of(int member) const {
  const auto at = static_cast<std::size_t>(member);
  return negotiation.arrivals[at] == Arrival::kInFull ? negotiation.in_full[at] : agreed;
}

const Signature& NameState::signature() const {
  int member = 0;
  while (!negotiation.has_arrived(member)) ++member;
  return signature_of(member);
}

// Includes the member's own first dimensions, for messages.
Signature NameState::shown_signature_of(int member) const {
  const auto at = static_cast<std::size_t>(member);
  Signature shown = signature_of(member);
  if (negotiation.arrivals[at] != Arrival::kUnchanged) return shown;
  for (std::size_t tensor = 0; tensor < first_dims.size(); ++tensor) {
    shown.tensors[tensor].shape.front() = first_dims[tensor][at];
  }
  return shown;
}

std::string NameState::disagreement(int member, const Members& members) const {
  const bool is_in_full = negotiation.arrivals[static_cast<std::size_t>(member)] == Arrival::kInFull;
  if (negotiation.n_arrived < 2 || !negotiation.has_full()) return {};  // the first, or all unchanged
  int other = 0;
  while (other == member || !negotiation.has_arrived(other)) ++other;
  if (!is_in_full && negotiation.arrivals[static_cast<std::size_t>(other)] == Arrival::kUnchanged) return {};
  const int low = std::min(member, other);
  const int high = std::max(member, other);
  if (describe_mismatch(signature_of(low), low, signature_of(high), high).empty()) return {};
  return describe_mismatch(shown_signature_of(low), members.rank(low), shown_signature_of(high), members.rank(high));
}

std::vector<HomeId> NameState::homes() const {
  std::vector<HomeId> homes = homes_;
  for (std::size_t member = 0; member < homes.size(); ++member) {
    if (negotiation.arrivals[member] == Arrival::kInFull) homes[member] = negotiation.homes[member];
  }
  return homes;
}

bool NameState::is_root_absent(const Members& members) const {
  if (negotiation.has_all() || !info(signature().collective).has_root) return false;
  return !negotiation.has_arrived(members.member(signature().root));
}

std::string NameState::why_not_captured(const Members& members) const {
  std::vector<int> captured;
  std::vector<int> others;
  for (int member = 0; member < members.size(); ++member) {
    if (!negotiation.has_arrived(member)) continue;
    const auto at = static_cast<std::size_t>(member);
    const bool is = negotiation.arrivals[at] == Arrival::kInFull && is_captured(negotiation.homes[at]);
    (is ? captured : others).push_back(members.rank(member));
  }
  if (captured.empty()) return {};
  if (!others.empty()) {
    return "its stream is being captured into a CUDA graph on " + list_ranks(captured) + ", and not on " +
           list_ranks(others) + ": capture it on all ranks, or on none";
  }
  if (!negotiation.has_all()) {
    return "its stream is being captured into a CUDA graph, and some ranks have joined: " + members.joined_text();
  }
  const int first = members.rank(0);
  const bool is_known = is_by_nccl(agreed_way) && describe_mismatch(agreed, first, signature(), first).empty();
  if (!is_cacheable || is_known) return {};
  return "its stream is being captured into a CUDA graph, and ranks have not made this call by NCCL before: make it "
         "once outside of the capture, with the same name and tensors of the same types and shapes";
}

void NameState::update_agreed() {
  const Signature now = signature();
  if (info(now.collective).first_dim_may_differ) {
    first_dims.resize(now.tensors.size());
    for (std::size_t tensor = 0; tensor < now.tensors.size(); ++tensor) {
      first_dims[tensor].resize(negotiation.arrivals.size());
      for (std::size_t member = 0; member < negotiation.arrivals.size(); ++member) {
        if (negotiation.arrivals[member] != Arrival::kInFull) continue;  // unchanged
        first_dims[tensor][member] = negotiation.in_full[member].tensors[tensor].shape.front();
      }
    }
  } else {
    first_dims.clear();
  }
  agreed = now;
  homes_ = homes();
  for (HomeId& home : homes_) home = without_capture(home);
}

// --- messages

StallReport NameState::stall_report(const Members& members, TimePoint now, bool is_reported) const {
  StallReport report;
  std::vector<std::string> missing;
  std::vector<std::string> present;
  for (int member = 0; member < members.size(); ++member) {
    if (negotiation.has_arrived(member)) {
      present.push_back(std::to_string(members.rank(member)));
    } else if (!members.has_joined(member)) {
      report.missing.push_back(member);
      missing.push_back(members.last_text(member, now));
    }
  }
  const std::string waited = seconds_text(now - negotiation.opened);
  if (is_reported) {
    report.text = "'" + name + "' still waits, after " + waited + ", for " + join_texts(missing) + ".";
    return report;
  }
  report.text = "'" + name + "' has waited " + waited + " for " + join_texts(missing) +
                ". Ranks that submitted it: " + join_texts(present) +
                ". All ranks must make the same calls; if a rank works for long without a call, raise "
                "CIRANDA_STALL_WARNING_SECONDS and CIRANDA_STALL_SHUTDOWN_SECONDS.";
  return report;
}

}  // namespace ciranda
