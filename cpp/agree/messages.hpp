// The messages of the agreement, as plain values: any thread. Reports go to the coordinator, entries of the log to all
// ranks. frames.hpp encodes and decodes them.
// Used by agree/, and by LaneLog, Lane, Reports, ControlPlane, Departures, RoundsByMessages and Lanes.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "agree/payload.hpp"
#include "base/status.hpp"
#include "base/way.hpp"
#include "call/request.hpp"

namespace ciranda {

inline constexpr std::uint32_t kNoCacheId = 0xffffffff;

// A lane is one ordered log over some ranks; "rank" below is a rank's index among the lane's members.
using LaneId = std::uint32_t;

// --- rank -> coordinator. Every RequestMessage, cache id of a ReadyMessage, and DuplicateMessage is a *report*.
// --- The log answers each exactly once (with an executed item or a failure), for each name in the order of reports.

// The first use of a name, a use that differs from the last one (in its priority or home, too), or a name without a
// cache id.
struct RequestMessage {
  std::string name;
  Signature signature;
  bool is_cacheable = true;
  bool is_deferrable = false;
  std::int32_t priority = 0;
  HomeId home = kHostHome;
};

// These names are ready, with the signature that this rank last used for their cache ids.
struct ReadyMessage {
  struct Item {
    std::uint32_t cache_id = 0;
    bool is_deferrable = false;
  };
  std::vector<Item> items;
};

// All names of these planned groups (PlanEntry) are ready: deferrable, and with the signature that this rank last used.
// Equivalent to a report of each of their cache ids. An empty list acknowledges the plan: this rank will report no
// groups of an older one.
struct GroupsMessage {
  std::uint32_t plan = 0;
  std::vector<std::uint32_t> groups;
};

// The rank has submitted the name again before its first use was done.
struct DuplicateMessage {
  std::string name;
};

// This rank waits, and submits nothing until some call completes, so the coordinator should hold nothing back.
struct WaitingMessage {};

// This rank has no more work: the others continue without it until all ranks have joined. May be repeated.
struct JoinMessage {
  std::uint64_t nth = 1;  // counts the joins of this rank, from 1
};

// The cache id's name is ready, with the signature that this rank last used, and its caller waits. This report goes to
// all members, the coordinator among them, with this rank's input to the name's `round` (sent_inputs.hpp). A member
// that has the inputs of all members executes the call; then the log has no answer.
struct InputMessage {
  std::uint32_t cache_id = 0;
  std::uint64_t round = 0;
  Payload input;  // empty only when handed to the coordinator
};

// This rank has forgotten the cache ids of the last ForgetEntry, except the `kept` ones, of which it has calls.
struct ForgottenMessage {
  std::vector<std::uint32_t> kept;
};

// This rank has not arrived at this direct round of the cache id by messages, and will not.
struct NoInputMessage {
  std::uint32_t cache_id = 0;
  std::uint64_t round = 0;
};

// No thread of this rank makes another call before one of its pending calls is answered, and all of these are in this
// lane (standstill.hpp). Holds until the rank reports anything else, or is answered.
struct StandingMessage {
  std::uint64_t log_index = 0;  // this rank has executed all earlier entries of the log
  std::uint32_t n_pending = 0;  // pending calls, all of them reported; 0: this rank no longer stands
  bool operator==(const StandingMessage&) const = default;
};

// This rank has left a formed set (process_sets.hpp): it has no pending call in the set, and will make none.
struct LeaveMessage {};

// To the world's coordinator: the entry of another lane's log needs a turn (turns.hpp). Sent by that lane's
// coordinator.
struct TurnMessage {
  LaneId lane = 0;
  std::uint64_t log_index = 0;
};

// --- relay -> relay: the reports of a subtree's ranks (relay.hpp), each rank's in the order in which it sent them

using ReadyReport = std::variant<RequestMessage, ReadyMessage, GroupsMessage, DuplicateMessage, JoinMessage,
                                 ForgottenMessage, StandingMessage, TurnMessage>;

struct RelayedMessage {
  struct Item {
    std::vector<std::int32_t> ranks;  // the senders of the report; empty: all ranks of the subtree
    ReadyReport report;
  };
  std::vector<Item> items;
  bool is_waiting = false;  // some rank of the subtree waits, and has reported nothing since it began to wait
};

// --- any rank -> any rank

// This rank shuts down. It has executed the log of each lane it belongs to up to (not including) log_index.
struct ByeMessage {
  struct LaneEnd {
    LaneId lane = 0;
    std::uint64_t log_index = 0;
    // The member that had left before, of which the sender heard first: who leaves because of it is not the cause of
    // what fails. -1: none had.
    std::int32_t first_leaver = -1;
  };
  std::vector<LaneEnd> lanes;
};
// The sender knows the departure that a ByeMessage or DeparturesMessage told it of, and does not need the rank that has
// left between itself and others. Each such message is answered by one.
struct ByeAckMessage {};

// This rank has left, and reads nothing more: nobody waits for its answers.
struct GoneMessage {};

// These ranks have left. Sent over the tree of all ranks (base/spanning_tree.hpp), and by each side of a new connection
// as its first message.
struct DeparturesMessage {
  struct Departure {
    std::int32_t rank = 0;
    std::vector<ByeMessage::LaneEnd> lanes;
  };
  std::vector<Departure> departures;
};

// From a rank to another to which it has no connection, over the tree of all ranks.
struct RoutedMessage {
  enum class Kind : std::uint8_t {
    kPing,
    kPong,
    kConnect,  // asks the higher of the two to connect
  };
  std::int32_t to = 0;
  std::int32_t from = 0;
  Kind kind = Kind::kPing;
};

// The world is broken; the sender fails all its calls with this error.
struct AbortMessage {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
};

// This rank sends no more InputMessages in the lane, because it has learnt that another rank has left.
struct NoMoreInputsMessage {};

struct PingMessage {};
struct PongMessage {};

// --- coordinator -> ranks: the response log

// How ranks execute the next call of a name without the log, in a direct round (direct_rounds.hpp).
enum class Direct : std::uint8_t {
  kNot,
  kInMemory,    // each rank writes its input to shared memory (round_rooms.hpp)
  kByMessages,  // each sends its input to all others (sent_inputs.hpp)
};

// One request for which all ranks are ready or have joined.
struct ExecuteItem {
  std::uint32_t cache_id = kNoCacheId;
  // Whether the next fields are sent: if the cache id has a new meaning, if there is none, or if ranks are absent.
  bool is_defined_here = false;
  std::string name;
  // first_dims[tensor][rank], for collectives whose first dimension may differ.
  FirstDims first_dims;
  // The ranks that have joined and did not submit the request: they help to execute it, as `signature` describes it.
  std::vector<std::int32_t> absent;
  Signature signature;  // sent only if ranks are absent
  Direct direct = Direct::kNot;
  // Sent with the fields above, and valid until it is sent again.
  Way way = Way::kHost;
};

// Whether ranks keep a checksum of the result, or compare those kept. It is in the log, so all ranks do the same.
enum class Check : std::uint8_t { kNone = 0, kRemember = 1, kCompare = 2 };

// Items that are executed together, in order.
struct ExecuteEntry {
  std::vector<ExecuteItem> items;
  Check check = Check::kNone;
};

struct RankRange {
  std::int32_t first = 0;
  std::int32_t last = 0;  // inclusive
  bool operator==(const RankRange&) const = default;
};

// A report of `name` has failed on each of these ranks; two reports of a rank that is in two of the ranges.
struct FailEntry {
  std::string name;
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
  std::vector<RankRange> targets;
};

// All ranks have joined, `last` as the last one; from now on none counts as joined.
struct JoinedEntry {
  std::int32_t last = 0;
};

// The last entry of a lane. The lane ends because its set is removed, or because a rank has left its formed set.
struct EndEntry {
  std::int32_t leaver = -1;  // the world rank that has left; -1: none
};

// From now on ranks may report these groups of cache ids. A group's number is its index in the list.
struct PlanEntry {
  std::uint32_t plan = 0;
  std::vector<std::vector<std::uint32_t>> groups;
};

// Execute the names of these planned groups together, in this order. All ranks are ready, none is absent, and the
// agreed signatures are unchanged.
struct ExecuteGroupsEntry {
  std::uint32_t plan = 0;
  std::vector<std::uint32_t> groups;
  Check check = Check::kNone;
};

// This round of the cache id has been open for too long. A rank that has not arrived at it by messages must not arrive
// any more, and answers with NoInputMessage.
struct CancelEntry {
  std::uint32_t cache_id = 0;
  std::uint64_t round = 0;
};

// The names of these cache ids have not been used for long. Each rank forgets them, reports the next use of each in
// full, and answers with ForgottenMessage. Then other names may get the cache ids.
struct ForgetEntry {
  std::vector<std::uint32_t> cache_ids;
};

// In the world's log: the next turn is that of this entry of another lane's log (turns.hpp).
struct TurnEntry {
  LaneId lane = 0;
  std::uint64_t log_index = 0;
};

using LogEntry = std::variant<ExecuteEntry, FailEntry, JoinedEntry, EndEntry, PlanEntry, ExecuteGroupsEntry,
                              CancelEntry, ForgetEntry, TurnEntry>;

struct LogMessage {
  std::vector<LogEntry> entries;
};

using Message = std::variant<RequestMessage, ReadyMessage, DuplicateMessage, WaitingMessage, ByeMessage, ByeAckMessage,
                             AbortMessage, PingMessage, PongMessage, LogMessage, JoinMessage, GroupsMessage,
                             RelayedMessage, InputMessage, NoInputMessage, NoMoreInputsMessage, ForgottenMessage,
                             StandingMessage, LeaveMessage, TurnMessage, DeparturesMessage, RoutedMessage, GoneMessage>;

// A message and its lane (0 if it concerns no lane).
struct Envelope {
  LaneId lane = 0;
  Message message;
};

}  // namespace ciranda
