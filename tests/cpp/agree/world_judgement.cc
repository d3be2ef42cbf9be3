// SimulatedWorld: what must have become of the calls.
#include <algorithm>
#include <tuple>

#include "agree/simulated_world.hpp"

namespace ciranda::testing {
namespace {

// Null stands for a rank that has joined.
FirstDims first_dims_of(const std::vector<const Signature*>& by_rank) {
  const Signature& any = **std::find_if(by_rank.begin(), by_rank.end(), [](const auto* s) { return s != nullptr; });
  if (!info(any.collective).first_dim_may_differ) return {};
  FirstDims dims(any.tensors.size());
  for (std::size_t tensor = 0; tensor < dims.size(); ++tensor) {
    for (const Signature* signature : by_rank) {
      dims[tensor].push_back(signature == nullptr ? 0 : signature->tensors[tensor].shape.front());
    }
  }
  return dims;
}

template <typename Use>
bool has_duplicate(const std::vector<const Use*>& uses) {
  return std::any_of(uses.begin(), uses.end(), [](const Use* use) { return use != nullptr && use->is_duplicate; });
}

}  // namespace

std::string SimulatedWorld::violation() const {
  if (!broken().empty()) return broken();
  if (is_at_standstill()) return "ranks wait for each other for ever, and were not told";
  Rounds rounds;
  for (std::size_t at = 0; at < ranks_.size(); ++at) {
    for (const Use& use : ranks_[at].uses) {
      auto& round = rounds[{use.epoch, use.name, use.nth}];
      round.resize(ranks_.size(), nullptr);
      round[at] = &use;
    }
  }
  if (std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.has_left; })) {
    const std::string wrong = judge_rounds();
    return wrong.empty() ? judge_leaving(rounds) : wrong;
  }
  if (std::string wrong = judge_joins(); !wrong.empty()) return wrong;
  for (const auto& [key, uses] : rounds) {
    const auto& [epoch, name, nth] = key;
    const auto next = rounds.find({epoch, name, nth + 1});
    const bool is_repeated = next != rounds.end() && has_duplicate(next->second);
    if (std::string wrong = judge(epoch, name, nth, uses, is_repeated); !wrong.empty()) return wrong;
  }
  return {};
}

// All executed the same number of entries in the same order (those that helped know only the name), and joins end when
// and only when all ranks have joined.
std::string SimulatedWorld::judge_joins() const {
  const Rank& first = ranks_.front();
  const auto is_same = [](const std::string& a, const std::string& b) {
    return a == b || a.starts_with("help") || b.starts_with("help");
  };
  std::size_t n_joined = first.n_joins;
  for (const Rank& rank : ranks_) {
    if (!std::equal(rank.executed.begin(), rank.executed.end(), first.executed.begin(), first.executed.end(),
                    is_same)) {
      return "ranks executed different things, or in different orders";
    }
    if (rank.joined_last != first.joined_last) return "ranks know different ranks as the last to join";
    n_joined = std::min(n_joined, rank.n_joins);
  }
  const bool is_right = has_ended_ ? first.joined_last.size() <= n_joined : first.joined_last.size() == n_joined;
  return is_right ? "" : "joins ended before all ranks had joined, or not at all";
}

// When one has left, nobody waits for an input any longer.
std::string SimulatedWorld::judge_rounds() const {
  for (const Rank& rank : ranks_) {
    if (!rank.has_left && rank.log_end && !rank.by_messages.empty()) return "a round outlived the lane";
  }
  return {};
}

// What all who left had executed, the others execute too; what one of them had not, nobody can carry out.
std::string SimulatedWorld::judge_leaving(const Rounds& rounds) const {
  std::size_t n_valid = log_.size();
  for (const Rank& rank : ranks_) n_valid = rank.has_left ? std::min(n_valid, rank.n_applied) : n_valid;
  for (const Rank& rank : ranks_) {
    if (rank.n_applied < n_valid) return "a rank is left without a part of the log that one that left had executed";
  }
  for (const auto& [key, uses] : rounds) {
    const bool is_direct = goes_by_messages() && std::any_of(uses.begin(), uses.end(), [](const Use* use) {
                             return use != nullptr && use->outcome && use->outcome->entry >= kMetAt;
                           });
    const auto is_executed = [n_valid](const Use* use) {
      return use != nullptr && use->outcome && use->outcome->is_executed &&
             (use->outcome->entry < n_valid || use->outcome->entry >= kMetAt);
    };
    if (std::none_of(uses.begin(), uses.end(), is_executed)) continue;
    for (std::size_t at = 0; at < uses.size(); ++at) {
      const bool is_missed = uses[at] == nullptr && has_joined(at, std::get<0>(key));
      if (is_direct && ranks_[at].has_left && uses[at] != nullptr && !uses[at]->outcome) continue;  // it left meanwhile
      if (!is_missed && !is_executed(uses[at])) return "'" + std::get<1>(key) + "' was executed on some ranks only";
    }
  }
  return {};
}

std::string SimulatedWorld::judge(std::size_t epoch, const std::string& name, std::size_t nth,
                                  const std::vector<const Use*>& uses, bool is_repeated) const {
  const std::string which = "use " + std::to_string(nth) + " of '" + name + "'";
  bool is_complete = true;
  bool is_bad = false;
  bool may_fail = has_ended_ || is_repeated || n_stalls_ > 0 || n_standstills_ > 0;
  const Use* first = nullptr;
  for (std::size_t at = 0; at < uses.size(); ++at) {
    const Use* use = uses[at];
    is_complete = is_complete && (use != nullptr || has_joined(at, epoch));
    if (use == nullptr) continue;
    if (first == nullptr) first = use;
    is_bad = is_bad || use->is_duplicate || !describe_mismatch(first->signature, 0, use->signature, 1).empty();
    may_fail = may_fail || is_bad;
  }
  const bool has_root = info(first->signature.collective).has_root;
  for (std::size_t at = 0; at < uses.size(); ++at) {
    const bool is_needed = first->signature.needs_all || (has_root && first->signature.root == static_cast<int>(at));
    if (is_needed && uses[at] == nullptr && has_joined(at, epoch)) is_bad = may_fail = true;
  }
  if (is_complete) return judge_complete(which, uses, is_bad, may_fail);
  for (std::size_t at = 0; at < uses.size(); ++at) {
    if (uses[at] == nullptr) continue;
    const auto& outcome = uses[at]->outcome;
    if (outcome && outcome->is_executed) return which + " was executed although a rank never reported it";
    if (has_ended_ && !outcome) return which + " outlived its lane";
    if (outcome && !may_fail) return which + " failed without a reason: " + outcome->status.message();
    if (!outcome && is_bad && earlier_are_answered(ranks_[at], *uses[at])) return which + " was left without its error";
  }
  return {};
}

// Answers come in the order of the calls, so an error waits for what the rank asked before under the same name.
bool SimulatedWorld::earlier_are_answered(const Rank& rank, const Use& use) {
  return std::all_of(rank.uses.begin(), rank.uses.end(), [&use](const Use& other) {
    return other.name != use.name || other.nth >= use.nth || other.outcome;
  });
}

std::string SimulatedWorld::judge_complete(const std::string& which, const std::vector<const Use*>& uses,
                                           bool must_fail, bool may_fail) const {
  std::vector<const Signature*> signatures;
  const Use* one = *std::find_if(uses.begin(), uses.end(), [](const Use* use) { return use != nullptr; });
  for (const Use* use : uses) {
    signatures.push_back(use == nullptr ? nullptr : &use->signature);
    if (use == nullptr) continue;
    if (!use->outcome) return which + " was never answered on some rank";
    if (use->outcome->is_executed && must_fail) return which + " was executed although it is wrong";
    if (!use->outcome->is_executed && !may_fail) return which + " failed: " + use->outcome->status.message();
  }
  const Outcome& first = *one->outcome;
  for (const Use* use : uses) {
    if (use == nullptr) continue;
    const Outcome& outcome = *use->outcome;
    if (outcome.is_executed != first.is_executed) {
      return which + " was executed on some ranks and failed on others";
    } else if (!outcome.is_executed) {
      const bool is_same =
          outcome.status.message() == first.status.message() && outcome.status.kind() == first.status.kind();
      if (!is_same && !has_ended_) {
        return which + " failed with different errors: " + outcome.status.message() + " / " + first.status.message();
      }
    } else if (outcome.entry != first.entry) {
      return which + " was executed by different entries of the log";
    } else if (outcome.first_dims != first_dims_of(signatures)) {
      return which + " was executed with wrong first dimensions";
    }
  }
  return {};
}

}  // namespace ciranda::testing
