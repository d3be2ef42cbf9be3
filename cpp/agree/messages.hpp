// What ranks say to each other to agree, as plain values. frames.hpp turns them into bytes and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "agree/payload.hpp"
#include "base/status.hpp"
#include "call/request.hpp"

namespace ciranda {

inline constexpr std::uint32_t kNoCacheId = 0xffffffff;

// A lane is one ordered log over some ranks; "rank" below is a rank's place among the lane's members.
using LaneId = std::uint32_t;

// --- rank -> coordinator. Every Request, every cache id of a Ready and every Duplicate is a *report*; the log
// --- answers each exactly once (an executed item or a failure), in the order reported for a name.

// A name is used for the first time, or otherwise than last time (with another priority, too), or has no cache id.
struct RequestMessage {
  std::string name;
  Signature signature;
  bool is_cacheable = true;
  bool is_deferrable = false;
  std::int32_t priority = 0;
};

// Names are ready with the signature this rank had for their cache ids last time.
struct ReadyMessage {
  struct Item {
    std::uint32_t cache_id = 0;
    bool is_deferrable = false;
    std::vector<std::byte> input = {};  // small, and then it may come back with the log: see ExecuteEntry
  };
  std::vector<Item> items;
};

// All names of these planned groups (PlanEntry) are ready, deferrable and with the signature this rank had last time:
// as if each of their cache ids were reported. Without groups: this rank knows the plan, and will name no groups of an
// older one.
struct GroupsMessage {
  std::uint32_t plan = 0;
  std::vector<std::uint32_t> groups;
};

// The name was submitted again before its first use was done.
struct DuplicateMessage {
  std::string name;
};

// This rank waits and will submit nothing until something completes: hold nothing back.
struct WaitingMessage {};

// This rank has no more work: until all ranks have joined, the others go on without it. It may be said again.
struct JoinMessage {
  std::uint64_t nth = 1;  // of the rank's, from 1
};

// The cache id's name is ready with the signature this rank had last time, and waited for: a report, which goes to
// all members, the coordinator among them, with what this rank contributes to the name's `round`
// (sent_inputs.hpp). Whoever has all members' inputs carries the call out; then the log has no answer.
struct InputMessage {
  std::uint32_t cache_id = 0;
  std::uint64_t round = 0;
  Payload input;  // empty only where it is handed to the coordinator
};

// This rank has forgotten what the last ForgetEntry names, but for the cache ids that it has calls of.
struct ForgottenMessage {
  std::vector<std::uint32_t> kept;
};

// This rank has not come to this round of the cache id by messages, and will not.
struct NoInputMessage {
  std::uint32_t cache_id = 0;
  std::uint64_t round = 0;
};

// No thread of this rank makes another call before one of its pending ones is answered, and all of these are in this
// lane (standstill.hpp). So it is until the rank reports anything else, or is answered.
struct StandingMessage {
  std::uint64_t log_index = 0;  // the entries of the log before this one are executed
  std::uint32_t n_pending = 0;  // calls, all of them reported; 0: it stands no longer
  bool operator==(const StandingMessage&) const = default;
};

// This rank has left a formed set (process_sets.hpp): it has no call of it pending, and will make none.
struct LeaveMessage {};

// --- relay -> relay: what the ranks of a subtree report (relay.hpp), in the order in which each did

using ReadyReport = std::variant<RequestMessage, ReadyMessage, GroupsMessage, DuplicateMessage, JoinMessage,
                                 ForgottenMessage, StandingMessage>;

struct RelayedMessage {
  struct Item {
    std::vector<std::int32_t> ranks;  // that report it; empty: all of the subtree
    ReadyReport report;
  };
  std::vector<Item> items;
  bool is_waiting = false;  // of the subtree's ranks, one waits and has reported nothing since
};

// --- any rank -> any rank

// This rank shuts down. It has executed the log of each lane it belongs to up to (not including) log_index.
struct ByeMessage {
  struct LaneEnd {
    LaneId lane = 0;
    std::uint64_t log_index = 0;
  };
  std::vector<LaneEnd> lanes;
};
struct ByeAckMessage {};

// The world is broken; the sender fails everything with this.
struct AbortMessage {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
};

// In the lane, this rank sends no InputMessage any more: it has heard that another has left.
struct NoMoreInputsMessage {};

struct PingMessage {};
struct PongMessage {};

// --- coordinator -> ranks: the response log

// How ranks carry out the next call of a name without the log, by a direct round (direct_rounds.hpp).
enum class Direct : std::uint8_t {
  kNot,
  kInMemory,    // each leaves its input in memory that all share (round_places.hpp)
  kByMessages,  // each sends its input to all others (sent_inputs.hpp)
};

// One request that all ranks are ready for, or have joined.
struct ExecuteItem {
  std::uint32_t cache_id = kNoCacheId;
  // Present when the cache id gets a new meaning, or there is no cache id, or ranks are absent.
  bool is_defined_here = false;
  std::string name;
  // first_dims[tensor][rank], for collectives whose first dimension may differ.
  FirstDims first_dims;
  // The ranks that have joined and did not submit it: they help to carry it out, and learn from `signature` what it is.
  std::vector<std::int32_t> absent;
  Signature signature;  // only where ranks are absent
  Direct direct = Direct::kNot;
};

// Whether ranks remember a checksum of the result, and compare what they remember. The log says so: all do alike.
enum class Check : std::uint8_t { kNone = 0, kRemember = 1, kCompare = 2 };

// Items that travel together, in order.
struct ExecuteEntry {
  std::vector<ExecuteItem> items;
  Check check = Check::kNone;
  // Where all ranks reported the only item along with their input: these, in rank order, so that no rank needs any
  // other to carry it out.
  std::vector<std::byte> inputs = {};
};

struct RankRange {
  std::int32_t first = 0;
  std::int32_t last = 0;  // it too
  bool operator==(const RankRange&) const = default;
};

// A report of `name` has failed on each of these ranks: on one in two of the ranges, two have.
struct FailEntry {
  std::string name;
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
  std::vector<RankRange> targets;
};

// All ranks have joined, `last` as the last: they are all back.
struct JoinedEntry {
  std::int32_t last = 0;
};

// The last entry of a lane that is taken down: with its set, or because a rank has left that.
struct EndEntry {
  std::int32_t leaver = -1;  // in the world; -1: none
};

// From now on ranks may report these groups of cache ids, each by its place in the list.
struct PlanEntry {
  std::uint32_t plan = 0;
  std::vector<std::vector<std::uint32_t>> groups;
};

// The names of these planned groups, in this order, travel together. All ranks are ready, none is absent, and what they
// agreed on is unchanged.
struct ExecuteGroupsEntry {
  std::uint32_t plan = 0;
  std::vector<std::uint32_t> groups;
  Check check = Check::kNone;
};

// This round of the cache id has been open for too long. Whoever has not come to it by messages will not, and says so.
struct CancelEntry {
  std::uint32_t cache_id = 0;
  std::uint64_t round = 0;
};

// The names of these cache ids have not been used for long: each rank reports the next use of one in full, and says
// that it does. Then the cache ids may serve other names.
struct ForgetEntry {
  std::vector<std::uint32_t> cache_ids;
};

using LogEntry = std::variant<ExecuteEntry, FailEntry, JoinedEntry, EndEntry, PlanEntry, ExecuteGroupsEntry,
                              CancelEntry, ForgetEntry>;

struct LogMessage {
  std::vector<LogEntry> entries;
};

using Message =
    std::variant<RequestMessage, ReadyMessage, DuplicateMessage, WaitingMessage, ByeMessage, ByeAckMessage,
                 AbortMessage, PingMessage, PongMessage, LogMessage, JoinMessage, GroupsMessage, RelayedMessage,
                 InputMessage, NoInputMessage, NoMoreInputsMessage, ForgottenMessage, StandingMessage, LeaveMessage>;

// What travels: a message and the lane that it concerns (0 where it concerns no lane).
struct Envelope {
  LaneId lane = 0;
  Message message;
};

}  // namespace ciranda
