// CacheIds: the coordinator's table of cache ids, the numbers that stand for names in messages.
//
// Their number is limited. When all are assigned, the least recently used ones are reclaimed, some at a time: the log
// tells the members to forget them, each member answers, and only then may another name get the cache id. Until then it
// keeps its meaning. A member that has a pending call of a name keeps the cache id, and says so in its answer. No
// report by a forgotten cache id arrives after the answer.
//
// Called by Coordinator and Negotiations; pure. "Member": see members.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agree/messages.hpp"
#include "agree/negotiation.hpp"

namespace ciranda {

class CacheIds {
 public:
  CacheIds(std::size_t capacity, int n_members) : capacity_(capacity), n_members_(n_members) {}

  const std::vector<NameState*>& names() const { return names_; }
  bool has(std::uint32_t cache_id) const { return cache_id < names_.size(); }
  // REQUIRES, here and below: has(cache_id).
  NameState& name(std::uint32_t cache_id) const { return *names_[cache_id]; }

  // Assigns a cache id to the name if it may have one and has none. `takes_back`: whether a cache id that all members
  // have forgotten may be reassigned. Returns the name that has lost its cache id, or null.
  NameState* assign(NameState& name, bool takes_back);
  void note_use(std::uint32_t cache_id) {
    if (cache_id != kNoCacheId) last_used_[cache_id] = ++n_uses_;
  }

  // Selects the cache ids that the members must forget; none unless a name lacks a cache id. `takes_back`: as above.
  std::optional<ForgetEntry> forget_some(bool takes_back);
  bool is_to_answer(int member) const {
    return !to_forget_.empty() && !has_forgotten_[static_cast<std::size_t>(member)];
  }
  // A member has forgotten these cache ids, except the ones in `kept`. REQUIRES: is_to_answer(member).
  void forgotten(int member, const std::vector<std::uint32_t>& kept);

 private:
  NameState* take_back(NameState& name);

  std::size_t capacity_;
  int n_members_;
  std::vector<NameState*> names_;         // by cache id
  std::vector<std::uint64_t> last_used_;  // by cache id: n_uses_ at its last use
  std::uint64_t n_uses_ = 0;
  bool lacks_some_ = false;               // some name found no free cache id
  std::vector<std::uint32_t> to_forget_;  // cache ids that members were told to forget
  std::vector<bool> has_forgotten_;       // by member: whether it has answered
  std::vector<std::uint32_t> free_;       // cache ids that all members have forgotten
};

}  // namespace ciranda
