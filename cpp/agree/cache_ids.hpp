// CacheIds: the numbers by which names travel, as the coordinator gives them out.
//
// There are only so many. When all are given out, those that were used longest ago are taken back, some at a time: the
// log tells the members to forget them, each answers that it has, and only then another name gets the cache id. Until
// then the number means what it did. A member keeps what it has a call of; its answer says so, and nothing that it
// reported by that number is under way any longer when the answer is here.
//
// Pure. "Member": see members.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agree/messages.hpp"
#include "agree/round.hpp"

namespace ciranda {

class CacheIds {
 public:
  CacheIds(std::size_t capacity, int n_members) : capacity_(capacity), n_members_(n_members) {}

  const std::vector<NamedRounds*>& names() const { return names_; }
  bool has(std::uint32_t cache_id) const { return cache_id < names_.size(); }
  // REQUIRES, here and below: has(cache_id).
  NamedRounds& name(std::uint32_t cache_id) const { return *names_[cache_id]; }

  // Gives the name a cache id, if it may have one and has none. `takes_back`: whether that of another may be taken,
  // which is returned then and has none any more; else null.
  NamedRounds* assign(NamedRounds& name, bool takes_back);
  void note_use(std::uint32_t cache_id) {
    if (cache_id != kNoCacheId) last_used_[cache_id] = ++n_uses_;
  }

  // What the members are to be told to forget: none unless a name has got no cache id. `takes_back`: as above.
  std::optional<ForgetEntry> forget_some(bool takes_back);
  bool is_to_answer(int member) const {
    return !to_forget_.empty() && !has_forgotten_[static_cast<std::size_t>(member)];
  }
  // A member has forgotten them but for some. REQUIRES: is_to_answer(member).
  void forgotten(int member, const std::vector<std::uint32_t>& kept);

 private:
  NamedRounds* take_back(NamedRounds& name);

  std::size_t capacity_;
  int n_members_;
  std::vector<NamedRounds*> names_;       // by cache id
  std::vector<std::uint64_t> last_used_;  // likewise, as n_uses_ was then
  std::uint64_t n_uses_ = 0;
  bool lacks_some_ = false;               // a name has got none
  std::vector<std::uint32_t> to_forget_;  // what members were told to forget
  std::vector<bool> has_forgotten_;       // and who has
  std::vector<std::uint32_t> free_;       // that all have forgotten
};

}  // namespace ciranda
