// HeldGroups: the planned groups of names on one rank. A deferrable call of a group is *held* until all calls of the
// group can be reported by one number. Called by Participant, which holds, and Reports, which must release held calls
// in time; pure.
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
  // `names` outlives this object.
  explicit HeldGroups(const KnownNames& names) : names_(names) {}

  // Returns none if the name is in no group. Otherwise returns the message for the coordinator: the group's number, or
  // an empty ReadyMessage if the call is now held.
  std::optional<Message> hold(PersistentOp& op);
  // Returns the held calls as reports to send now.
  ReadyMessage release();
  bool any() const { return n_held_ > 0; }

  // Replaces the groups. Returns an invalid cache id: one without a name, or in two groups. REQUIRES: no call is held.
  std::optional<std::uint32_t> plan(const PlanEntry& entry);
  // The cache ids of a group; null if there is no such group.
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
