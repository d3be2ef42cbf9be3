// ReadyQueue: names and groups of names that are ready on all members and wait for execution. Decides which of them go
// into the log now, which wait for the rest of their planned group (learned_order.hpp), and which are fused.
//
// Ranks execute the log in order. So once a name has had a priority, few bytes are put into the log ahead of execution,
// and a more urgent name can overtake all that are still in this queue. A group is as urgent as its most urgent name.
// (P3, Jayarajan et al., 2019, and ByteScheduler, Peng et al., 2019, do the same for gradients; they call the bytes put
// ahead the credit.) Called by Coordinator, Negotiations, PlannedGroups; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agree/coordinator_options.hpp"
#include "agree/learned_order.hpp"
#include "agree/negotiation.hpp"
#include "agree/planned_group.hpp"

namespace ciranda {

class ReadyQueue {
 public:
  // Names, or groups of them, that are executed together.
  struct Batch {
    std::vector<NameState*> names;
    std::vector<PlannedGroup*> groups;
  };

  // A batch has at most options.fusion_threshold_bytes, or one name. `options` outlives this object.
  explicit ReadyQueue(const CoordinatorOptions& options);

  // Equal for signatures that can be fused and go the same way, kNoKind for one that cannot.
  std::uint32_t kind_of(const Signature& signature, Way way);

  // REQUIRES: the negotiation of the name, or of each name of the group, is complete, and stays so until take() or
  // remove().
  void push(NameState& name);
  void push(PlannedGroup& group);
  void remove(const NameState& name);
  void remove(const PlannedGroup& group);
  bool is_empty() const { return waiting_.empty(); }

  // The most urgent first, or else in the order in which they became ready. While transfers are under way, few bytes
  // are held back, to be fused with later ones. If `is_urgent`, no name waits for its group. `n_bytes_under_way`: in
  // the log but not yet executed; used only if there are priorities.
  std::vector<Batch> take(bool wire_is_idle, bool is_urgent, std::size_t n_bytes_under_way);
  // Whether any name has had a priority so far.
  bool has_priorities() const { return has_priorities_; }

  const LearnedOrder& order() const { return order_; }

 private:
  struct Waiting {
    NameState* name = nullptr;        // null for a planned group
    PlannedGroup* planned = nullptr;  // reported as a group; null for a name
    std::optional<std::uint32_t> group;
    std::uint64_t plan = 0;     // to which `group` belongs
    std::int32_t priority = 0;  // for a group, that of its most urgent name
    std::size_t n_bytes() const { return planned != nullptr ? planned->n_bytes : name->signature().n_bytes(); }
  };
  void count_for_plan();
  bool is_held(const Waiting& waiting) const;
  void ungroup(Waiting& waiting);
  void add(Waiting waiting);
  // Returns the most urgent of `free` for which there is room; puts the others back.
  std::vector<Waiting> most_urgent(std::vector<Waiting> free, bool wire_is_idle, std::size_t n_bytes_under_way);
  std::vector<Batch> batches_of(const std::vector<Waiting>& free) const;
  static bool can_join(const Batch& batch, const Waiting& waiting);

  const CoordinatorOptions& options_;
  bool has_priorities_ = false;
  std::vector<Waiting> waiting_;  // in the order in which they became ready
  LearnedOrder order_;
  struct Kind {
    Signature signature;  // one of it
    Way way;
  };
  std::vector<Kind> kinds_;
  std::uint64_t plan_ = 0;               // the plan to which n_in_group_ belongs
  std::vector<std::size_t> n_in_group_;  // waiting names by planned group
};

}  // namespace ciranda
