// HeldGroups: the planned groups of names, as one rank reports them. A deferrable call of such a group is *held*: it is
// reported when all of the group can be, by one number. Whoever uses this sees to it that what is held is released in
// time. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agree/known_names.hpp"
#include "agree/messages.hpp"
#include "agree/persistent_op.hpp"

namespace ciranda {

class HeldGroups {
 public:
  // The names outlive this.
  explicit HeldGroups(const KnownNames& names) : names_(names) {}

  // None: the name is in no group. Otherwise what to tell the coordinator: an empty ReadyMessage, and it is held; or
  // the group's number.
  std::optional<Message> hold(PersistentOp& op);
  // What is held, to be reported now.
  ReadyMessage release();
  bool any() const { return n_held_ > 0; }

  // From now on these are the groups. Returns a cache id that does not fit: no name has it, or it is in two groups.
  // REQUIRES: nothing is held.
  std::optional<std::uint32_t> plan(const PlanEntry& entry);
  // The cache ids of a group; null if there is none.
  const std::vector<std::uint32_t>* find(std::uint32_t plan, std::uint32_t number) const {
    return plan == plan_ && number < groups_.size() ? &groups_[number].cache_ids : nullptr;
  }

 private:
  struct Group {
    std::vector<std::uint32_t> cache_ids;
    std::size_t n_held = 0;
  };

  const KnownNames& names_;
  std::uint32_t plan_ = 0;  // 0: none
  std::vector<Group> groups_;
  std::vector<std::uint32_t> group_of_id_;  // or kNoGroup
  std::size_t n_held_ = 0;
};

}  // namespace ciranda
