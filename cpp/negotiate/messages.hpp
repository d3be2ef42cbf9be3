// What ranks say to each other to agree, as plain values. codec.hpp turns them into bytes and back.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/status.hpp"
#include "request/request.hpp"

namespace ciranda {

inline constexpr std::uint32_t kNoSlot = 0xffffffff;

// --- rank -> coordinator. Every Request, every slot of a Ready and every Duplicate is an *announcement*; the log
// --- answers each exactly once (an executed item or a failure), in the order announced for a name.

// A name is used for the first time, or otherwise than last time, or has no slot.
struct RequestMessage {
  std::string name;
  Signature signature;
  bool is_cacheable = true;
  bool is_deferrable = false;
};

// Names are ready with the signature this rank had for their slots last time.
struct ReadyMessage {
  struct Item {
    std::uint32_t slot = 0;
    bool is_deferrable = false;
  };
  std::vector<Item> items;
};

// The name was submitted again before its first use was done.
struct DuplicateMessage {
  std::string name;
};

// This rank waits and will submit nothing until something completes: hold nothing back.
struct WaitingMessage {};

// --- any rank -> any rank

// This rank shuts down. It has executed the log up to (not including) log_index.
struct ByeMessage {
  std::uint64_t log_index = 0;
};
struct ByeAckMessage {};

// The circle is broken; the sender fails everything with this.
struct AbortMessage {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
};

struct PingMessage {};
struct PongMessage {};

// Something a person should read: the receiver prints it once.
struct NoticeMessage {
  std::string text;
};

// --- coordinator -> ranks: the response log

// One request that all ranks are ready for.
struct ExecuteItem {
  std::uint32_t slot = kNoSlot;
  // Present when the slot gets a new meaning, or there is no slot.
  bool is_defined_here = false;
  std::string name;
  // first_dims[tensor][rank], for collectives whose first dimension may differ.
  std::vector<std::vector<std::int64_t>> first_dims;
};

// Items that travel together, in order.
struct ExecuteEntry {
  std::vector<ExecuteItem> items;
};

// An announcement of `name` on each of `targets` (a rank may stand there twice) has failed.
struct FailEntry {
  std::string name;
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
  std::vector<std::int32_t> targets;
};

using LogEntry = std::variant<ExecuteEntry, FailEntry>;

struct LogMessage {
  std::vector<LogEntry> entries;
};

using Message = std::variant<RequestMessage, ReadyMessage, DuplicateMessage, WaitingMessage, ByeMessage, ByeAckMessage,
                             AbortMessage, PingMessage, PongMessage, NoticeMessage, LogMessage>;

}  // namespace ciranda
