// ReadyQueue: names and groups of names that are ready on all members, until they are carried out: which of them go
// now, which are kept back for the rest of their planned group (learned_order.hpp), and which travel together.
//
// What has been given out is carried out in that order. So once a name with a priority has come, little is given out in
// advance: what is more urgent can then overtake all that is still here. A group is as urgent as the most urgent of its
// names. (P3, Jayarajan et al., 2019, and ByteScheduler, Peng et al., 2019, do the same for gradients, and call what
// is given out in advance the credit.) Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agree/coordinator_options.hpp"
#include "agree/learned_order.hpp"
#include "agree/planned_groups.hpp"
#include "agree/round.hpp"

namespace ciranda {

class ReadyQueue {
 public:
  // What travels together: names, or groups of them.
  struct Batch {
    std::vector<NamedRounds*> names;
    std::vector<PlannedGroup*> groups;
  };

  // A batch has at most options.fusion_threshold_bytes, or one name. The options outlive this.
  explicit ReadyQueue(const CoordinatorOptions& options);

  // Equal for what can travel together, kNoKind for what cannot.
  std::uint32_t kind_of(const Signature& signature);

  // REQUIRES: the name's round is complete, or all of the group's are; it stays as it is until it is taken or removed.
  void push(NamedRounds& name);
  void push(PlannedGroup& group);
  void remove(const NamedRounds& name);
  void remove(const PlannedGroup& group);
  bool is_empty() const { return waiting_.empty(); }

  // The most urgent first, or in the order in which they became ready. While the wire is busy, little is kept back to
  // travel with what comes; where it is urgent, groups are not waited for. `n_bytes_under_way`: given out and not
  // carried out yet; counts only where there are priorities.
  std::vector<Batch> take(bool wire_is_idle, bool is_urgent, std::size_t n_bytes_under_way);
  // Whether any name has had one so far.
  bool has_priorities() const { return has_priorities_; }

  const LearnedOrder& order() const { return order_; }

 private:
  struct Waiting {
    NamedRounds* name = nullptr;      // or
    PlannedGroup* planned = nullptr;  // reported as a group
    std::optional<std::uint32_t> group;
    std::uint64_t plan = 0;     // the group's
    std::int32_t priority = 0;  // or of the most urgent name
    std::size_t n_bytes() const { return planned != nullptr ? planned->n_bytes : name->signature().n_bytes(); }
  };
  void count_for_plan();
  bool is_held(const Waiting& waiting) const;
  void leave_group(Waiting& waiting);
  void add(Waiting waiting);
  // Those of `free` that there is room for, the most urgent first; the others wait on.
  std::vector<Waiting> most_urgent(std::vector<Waiting> free, bool wire_is_idle, std::size_t n_bytes_under_way);
  std::vector<Batch> batches_of(const std::vector<Waiting>& free) const;
  static bool can_join(const Batch& batch, const Waiting& waiting);

  const CoordinatorOptions& options_;
  bool has_priorities_ = false;
  std::vector<Waiting> waiting_;  // in the order in which they became ready
  LearnedOrder order_;
  std::vector<Signature> kinds_;         // one of each
  std::uint64_t plan_ = 0;               // that n_in_group_ counts for
  std::vector<std::size_t> n_in_group_;  // waiting names by planned group
};

}  // namespace ciranda
