// LearnedOrder: in which order named tensors become ready step after step, and the groups planned from it.
//
// Training submits the same tensors every step. Once two steps in a row have brought the same set, the order of the
// last one is cut into groups of about group_bytes, each of tensors of one kind; the coordinator then holds a tensor
// until its group is complete instead of sending it alone. A step that differs drops the plan, and learning starts
// again. While a plan holds, a whole group can be observed at once, at a cost that does not depend on its size.
// Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

namespace ciranda {

// What can travel together is of one kind. What has none travels alone and is in no group.
inline constexpr std::uint32_t kNoKind = 0xffffffff;

struct LearnedOrderOptions {
  std::size_t group_bytes = 1 << 20;                                  // a group that has as much is full
  std::size_t most_bytes = std::numeric_limits<std::size_t>::max();   // and never has more, unless of one tensor
  std::size_t most_groups = std::numeric_limits<std::size_t>::max();  // of about equal size; groups are larger for it
};

class LearnedOrder {
 public:
  explicit LearnedOrder(const LearnedOrderOptions& options) : options_(options) {}

  // A cache id's request has become ready on all ranks. A cache id seen again begins the next step.
  void observe(std::uint32_t cache_id, std::size_t n_bytes, std::uint32_t kind = 0);
  // All cache ids of a group have. REQUIRES: the group is of the plan that holds.
  void observe_group(std::uint32_t group);

  // The planned group of a cache id, while there is a plan and the step so far agrees with it.
  std::optional<std::uint32_t> group_of(std::uint32_t cache_id) const;
  // Which plan holds now: a number that changes with every plan made or dropped.
  std::uint64_t plan() const { return plan_; }
  bool has_plan() const { return !planned_.empty(); }
  std::size_t n_groups() const { return groups_.size(); }
  // How many cache ids the group has. REQUIRES: group came from group_of.
  std::size_t group_size(std::uint32_t group) const { return groups_[group].cache_ids.size(); }
  const std::vector<std::uint32_t>& cache_ids_of(std::uint32_t group) const { return groups_[group].cache_ids; }
  // What all of the group were learned as.
  std::uint32_t kind_of(std::uint32_t group) const { return groups_[group].kind; }

 private:
  struct Seen {
    std::uint32_t cache_id;
    std::size_t n_bytes;
    std::uint32_t kind;
  };
  struct Planned {
    std::size_t position;                // in previous_
    std::optional<std::uint32_t> group;  // none: it travels alone
    std::uint64_t step = 0;              // in which it was last seen by itself
  };
  struct Group {
    std::vector<std::uint32_t> cache_ids;
    std::uint32_t kind = kNoKind;
    std::size_t n_bytes = 0;
    std::uint64_t step = 0;          // in which it was last seen as a whole
    std::uint64_t partial_step = 0;  // in which a cache id of it was last seen by itself
  };
  // While a plan holds only what was seen is noted, in order: a cache id, or a group.
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
  std::vector<Seen> current_;                                // of this step, while there is no plan
  std::unordered_map<std::uint32_t, std::size_t> position_;  // of a cache id in current_
  std::vector<Seen> previous_;                               // what the plan was made of
  std::unordered_map<std::uint32_t, Planned> planned_;       // by cache id; empty: no plan
  std::vector<Group> groups_;
  std::vector<Note> notes_;  // of this step
  std::size_t n_seen_ = 0;   // cache ids in this step
  std::uint64_t step_ = 1;
  std::uint64_t plan_ = 0;
};

}  // namespace ciranda
