#include "base/codec.hpp"

#include <cstdint>
#include <string>
#include <utility>

#include "agree/frames.hpp"

namespace ciranda {

constexpr bool is_one(Collective value) { return value < Collective{kNumCollectives}; }
constexpr bool is_one(ReduceOp value) { return reduce_op_from_wire(static_cast<std::uint8_t>(value)).has_value(); }
constexpr bool is_one(DataType value) { return data_type_from_wire(static_cast<std::uint8_t>(value)).has_value(); }
constexpr bool is_one(Check value) { return value <= Check::kCompare; }
constexpr bool is_one(Direct value) { return value <= Direct::kByMessages; }
constexpr bool is_one(RoutedMessage::Kind value) { return value <= RoutedMessage::Kind::kConnect; }
constexpr bool is_one(Way value) { return value <= Way::kGraph; }

// --- the fields of each message, in wire order; one function serves writing and reading

void code_name(auto& io, auto& name) {
  io(name);
  io.require(name.size() <= kMaxNameBytes);
}
inline void code(ByteWriter& io, const Payload& m) { io(m.bytes()); }
inline void code(ByteReader& io, Payload& m) {
  std::vector<std::byte> bytes;
  io(bytes);
  io.require(!bytes.empty());
  m = Payload(std::move(bytes));
}

void code(auto& io, Is<TensorSignature> auto& m) {
  io(m.dtype, m.shape);
  io.require(m.shape.size() <= kMaxDimensions);
}
void code(auto& io, Is<Signature> auto& m) {
  io(m.collective, m.op, m.root, m.prescale, m.postscale, m.tensors);
  io.require(m.tensors.size() <= kMaxTensorsPerRequest);
  io(m.arguments, m.is_weighted, m.divides_by_all, m.needs_all);
}

void code(auto& io, Is<RequestMessage> auto& m) {
  io(m.is_cacheable, m.is_deferrable, m.priority, m.home);
  code_name(io, m.name);
  io(m.signature);
}
void code(auto& io, Is<ReadyMessage::Item> auto& m) { io(m.cache_id, m.is_deferrable); }
void code(auto& io, Is<ReadyMessage> auto& m) { io(m.items); }
void code(auto& io, Is<GroupsMessage> auto& m) { io(m.plan, m.groups); }
void code(auto& io, Is<DuplicateMessage> auto& m) { code_name(io, m.name); }
void code(auto& io, Is<JoinMessage> auto& m) { io(m.nth); }
void code(auto& io, Is<InputMessage> auto& m) { io(m.cache_id, m.round, m.input); }
void code(auto& io, Is<ForgottenMessage> auto& m) { io(m.kept); }
void code(auto& io, Is<StandingMessage> auto& m) { io(m.log_index, m.n_pending); }
void code(auto& io, Is<TurnMessage> auto& m) { io(m.lane, m.log_index); }
void code(auto& io, Is<NoInputMessage> auto& m) { io(m.cache_id, m.round); }
void code(auto& io, Is<RelayedMessage::Item> auto& m) { io(m.ranks, m.report); }
void code(auto& io, Is<RelayedMessage> auto& m) { io(m.items, m.is_waiting); }

void code(auto& io, Is<ByeMessage::LaneEnd> auto& m) { io(m.lane, m.log_index, m.first_leaver); }
void code(auto& io, Is<ByeMessage> auto& m) { io(m.lanes); }
void code(auto& io, Is<DeparturesMessage::Departure> auto& m) { io(m.rank, m.lanes); }
void code(auto& io, Is<DeparturesMessage> auto& m) { io(m.departures); }
void code(auto& io, Is<RoutedMessage> auto& m) { io(m.to, m.from, m.kind); }
void code(auto& io, Is<AbortMessage> auto& m) { io(m.kind, m.text); }

void code(auto& io, Is<ExecuteItem> auto& m) {
  io(m.cache_id, m.is_defined_here, m.direct);
  if (!m.is_defined_here) return;
  code_name(io, m.name);
  io(m.way, m.first_dims, m.absent);
  if (!m.absent.empty()) io(m.signature);
}
void code(auto& io, Is<ExecuteEntry> auto& m) { io(m.items, m.check); }
void code(auto& io, Is<RankRange> auto& m) { io(m.first, m.last); }
void code(auto& io, Is<FailEntry> auto& m) {
  code_name(io, m.name);
  io(m.kind, m.text, m.targets);
}
void code(auto& io, Is<JoinedEntry> auto& m) { io(m.last); }
void code(auto& io, Is<EndEntry> auto& m) { io(m.leaver); }
void code(auto& io, Is<PlanEntry> auto& m) { io(m.plan, m.groups); }
void code(auto& io, Is<ExecuteGroupsEntry> auto& m) { io(m.plan, m.groups, m.check); }
void code(auto& io, Is<CancelEntry> auto& m) { io(m.cache_id, m.round); }
void code(auto& io, Is<ForgetEntry> auto& m) { io(m.cache_ids); }
void code(auto& io, Is<TurnEntry> auto& m) { io(m.lane, m.log_index); }
void code(auto& io, Is<LogMessage> auto& m) { io(m.entries); }

// Every valid request fits into a frame, whatever its number of tensors and dimensions.
constexpr std::size_t kMostBytesOfSignature =
    kMaxTensorsPerRequest * (2 * sizeof(std::uint64_t) + kMaxDimensions * sizeof(std::int64_t));
static_assert(kMaxNameBytes + kMostBytesOfSignature < kMaxFrameBytes);

void append_body(LaneId lane, const Message& message, std::vector<std::byte>& out) { ByteWriter{out}(lane, message); }

Result<Envelope> decode_body(std::span<const std::byte> body) {
  ByteReader in(body);
  Envelope envelope;
  in(envelope.lane, envelope.message);
  if (!in.is_complete()) {
    return Status::internal("a control frame of " + std::to_string(body.size()) + " bytes is malformed");
  }
  return envelope;
}

}  // namespace ciranda
