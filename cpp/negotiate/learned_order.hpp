// LearnedOrder: in which order named tensors become ready step after step, and the groups planned from it.
//
// Training submits the same tensors every step. Once two steps in a row have brought the same set, the order of the
// last one is cut into groups of about group_bytes; the coordinator then holds a tensor until its group is complete
// instead of sending it alone. A step that differs drops the plan, and learning starts again. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace ciranda {

class LearnedOrder {
 public:
  explicit LearnedOrder(std::size_t group_bytes) : group_bytes_(group_bytes) {}

  // A slot's request has become ready on all ranks. A slot seen again begins the next step.
  void observe(std::uint32_t slot, std::size_t n_bytes);

  // The planned group of a slot, while there is a plan and the step so far agrees with it.
  std::optional<std::uint32_t> group_of(std::uint32_t slot) const;
  // Which plan holds now: a number that changes with every plan made or dropped.
  std::uint64_t plan() const { return plan_; }
  std::size_t n_groups() const { return group_sizes_.size(); }
  // How many slots the group has. REQUIRES: group came from group_of.
  std::size_t group_size(std::uint32_t group) const { return group_sizes_[group]; }

 private:
  struct Seen {
    std::uint32_t slot;
    std::size_t n_bytes;
  };
  void begin_step();
  bool brought_the_same(const std::vector<Seen>& step) const;
  void make_plan();
  void drop_plan();

  std::size_t group_bytes_;
  std::vector<Seen> current_;
  std::unordered_map<std::uint32_t, std::size_t> position_;  // of a slot in current_
  std::vector<Seen> previous_;
  std::unordered_map<std::uint32_t, std::uint32_t> groups_;  // empty: no plan
  std::vector<std::size_t> group_sizes_;
  std::uint64_t plan_ = 0;
};

}  // namespace ciranda
