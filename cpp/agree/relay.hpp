// Relay: forwards the reports of a subtree's ranks in few messages: the reports of its own host's ranks, and those that
// it gets from the relays of the hosts below (relay_tree.hpp). The log is sent down the same tree.
//
// It *gathers* (merges) reports of planned groups: once all ranks of the subtree have reported a group, it forwards one
// number. It forwards all else unchanged, with the ranks that reported it: signatures, cache ids, duplicates, joins. If
// a name of a group is reported in another way, the group is *split*: the reports gathered so far are forwarded at
// once, rank by rank, and so are later reports, until the log executes a name of the group. The order of one rank's
// reports of a name, joins and duplicates is kept.
//
// Gathered reports wait only for ranks without which nothing can be executed. The coordinator must still receive them,
// to see errors and to name missing ranks: so LaneLog calls let_go() for reports held for long. Called by LaneLog; one
// thread (the holder of the progress lock); pure. Like the coordinator it is pure: no socket, thread or clock. "Rank"
// is a member of the lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "agree/messages.hpp"
#include "base/relay_tree.hpp"
#include "base/status.hpp"

namespace ciranda {

class Relay {
 public:
  // REQUIRES: `rank` is a relay of the tree. The tree is used only during the call.
  Relay(const RelayTree& tree, int rank);

  // Takes a message of a rank of the host, this one included, or of a relay below. An error means a protocol violation.
  Status on_message(int from, Message message);
  // Takes a part of the log that is about to be sent to the whole subtree.
  void pass_down(const LogMessage& log);

  // has_news(): whether there are reports to forward. take(): those reports; an item without ranks is from all ranks of
  // the subtree.
  bool has_news() const { return !news_.items.empty() || (is_waiting() && !has_reported_waiting_); }
  RelayedMessage take();

  bool holds_any() const { return n_held_ > 0; }
  // Forwards the gathered reports as they are.
  void let_go();

 private:
  struct Child {
    int rank;  // a rank of this host, or a relay below
    bool is_relay;
    std::vector<std::int32_t> ranks;  // the ranks whose reports this child sends
    bool is_waiting = false;
  };
  struct Group {
    std::vector<bool> has_arrived;  // by child: whether all of its ranks have reported the group
    std::size_t n_arrived = 0;
    bool is_split = false;
  };

  bool is_waiting() const { return n_waiting_ > 0; }
  void set_waiting(Child& child, bool is_waiting);
  Status on_relayed(std::size_t child, RelayedMessage message);
  void on_report(std::size_t child, std::vector<std::int32_t> ranks, ReadyReport report);
  void on_groups(std::size_t child, std::vector<std::int32_t> ranks, const GroupsMessage& message);
  void on_group(std::size_t child, std::uint32_t number);
  void pass_on(std::vector<std::int32_t> ranks, ReadyReport report);
  void pass_on_for_all(std::uint32_t group);
  void split(std::uint32_t group);
  void split_group_of(std::uint32_t cache_id);
  void let_go(Group& group, std::uint32_t number);
  void plan(const PlanEntry& entry);
  void mend(std::uint32_t cache_id);

  std::vector<Child> children_;
  std::size_t n_waiting_ = 0;  // children
  bool has_reported_waiting_ = false;
  bool gathers_ = false;      // false until groups are used, and while ranks have joined
  std::size_t n_joined_ = 0;  // ranks of the subtree
  std::uint32_t plan_ = 0;
  std::vector<Group> groups_;
  std::unordered_map<std::uint32_t, std::uint32_t> group_of_id_;
  std::size_t n_held_ = 0;  // groups that some children have reported
  RelayedMessage news_;
};

}  // namespace ciranda
