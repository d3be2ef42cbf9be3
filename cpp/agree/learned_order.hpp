// LearnedOrder: the order in which named tensors become ready in each step, and the groups planned from it.
//
// Training submits the same tensors every step. After two steps in a row with the same set of tensors, the order of the
// last step is cut into groups of about group_bytes, each with tensors of one kind. The coordinator then holds a tensor
// until its group is complete instead of sending it alone. A step that differs drops the plan, and learning restarts.
// While a plan holds, a group can be observed at once, at a cost that does not depend on its size.
// Called by ReadyQueue, which owns it, and PlannedGroups; types used by Negotiation and PlannedGroup; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

namespace ciranda {

// Tensors that can be fused have the same kind. A tensor without a kind is sent alone and is in no group.
inline constexpr std::uint32_t kNoKind = 0xffffffff;

struct LearnedOrderOptions {
  std::size_t group_bytes = 1 << 20;                                  // a group of this size is full
  std::size_t most_bytes = std::numeric_limits<std::size_t>::max();   // limit of a group with more than one tensor
  std::size_t most_groups = std::numeric_limits<std::size_t>::max();  // of a plan; with many tensors, groups grow
};

class LearnedOrder {
 public:
  explicit LearnedOrder(const LearnedOrderOptions& options) : options_(options) {}

  // The request of a cache id has become ready on all ranks. A cache id seen again begins the next step.
  void observe(std::uint32_t cache_id, std::size_t n_bytes, std::uint32_t kind = 0);
  // All requests of a group have become ready. REQUIRES: the group belongs to the current plan.
  void observe_group(std::uint32_t group);

  // The planned group of a cache id, while there is a plan and the current step agrees with it.
  std::optional<std::uint32_t> group_of(std::uint32_t cache_id) const;
  // The current plan: a number that changes whenever a plan is made or dropped.
  std::uint64_t plan() const { return plan_; }
  bool has_plan() const { return !planned_.empty(); }
  std::size_t n_groups() const { return groups_.size(); }
  // The number of cache ids in the group. REQUIRES: group_of() has returned `group`.
  std::size_t group_size(std::uint32_t group) const { return groups_[group].cache_ids.size(); }
  const std::vector<std::uint32_t>& cache_ids_of(std::uint32_t group) const { return groups_[group].cache_ids; }
  // The kind of all tensors of the group.
  std::uint32_t kind_of(std::uint32_t group) const { return groups_[group].kind; }

 private:
  struct Seen {
    std::uint32_t cache_id;
    std::size_t n_bytes;
    std::uint32_t kind;
  };
  struct Planned {
    std::size_t position;                // in previous_
    std::optional<std::uint32_t> group;  // none: the tensor is sent alone
    std::uint64_t step = 0;              // in which the cache id was last seen by itself
  };
  struct Group {
    std::vector<std::uint32_t> cache_ids;
    std::uint32_t kind = kNoKind;
    std::size_t n_bytes = 0;
    std::uint64_t step = 0;          // in which the group was last seen as a whole
    std::uint64_t partial_step = 0;  // in which some cache id of the group was last seen by itself
  };
  // An observation while a plan holds: a cache id, or a group.
  struct Note {
    bool is_group;
    std::uint32_t number;
  };

  void learn(const Seen& seen);
  void end_learning_step();
  bool brought_the_same(const std::vector<Seen>& step) const;
  // Each returns whether the plan still holds.
  bool note(std::uint32_t cache_id);
  bool end_planned_step();
  void make_plan();
  std::size_t bytes_of_a_group() const;
  void drop_plan();

  LearnedOrderOptions options_;
  std::vector<Seen> current_;                                // the current step, while there is no plan
  std::unordered_map<std::uint32_t, std::size_t> position_;  // of a cache id in current_
  std::vector<Seen> previous_;                               // the step from which the plan was made
  std::unordered_map<std::uint32_t, Planned> planned_;       // by cache id; empty: no plan
  std::vector<Group> groups_;
  std::vector<Note> notes_;  // of the current step, in order
  std::size_t n_seen_ = 0;   // cache ids in the current step
  std::uint64_t step_ = 1;
  std::uint64_t plan_ = 0;
};

}  // namespace ciranda
