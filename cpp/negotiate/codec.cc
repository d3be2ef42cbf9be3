#include "negotiate/codec.hpp"

#include <string>
#include <utility>
#include <variant>

#include "negotiate/fields.hpp"

namespace ciranda {
namespace {

// An entry of the log is at least its kind.
constexpr std::size_t kLeastEntryBytes = sizeof(std::uint8_t);

// Bits beside other values of their byte: an input, or all inputs, follow.
constexpr std::uint8_t kHasInput = 2;
constexpr std::uint8_t kHasInputs = 4;

// Of this namespace, so that those below are found for every alternative of a variant.
struct Writer : FieldWriter {
  using FieldWriter::FieldWriter;
};
struct Reader : FieldReader {
  using FieldReader::FieldReader;
};

void write(Writer& w, const Signature& s) {
  w.number(static_cast<std::uint8_t>(s.collective));
  w.number(static_cast<std::uint8_t>(s.op));
  w.number(s.root);
  w.number(s.prescale);
  w.number(s.postscale);
  w.number(static_cast<std::uint32_t>(s.tensors.size()));
  for (const TensorSignature& tensor : s.tensors) {
    w.number(static_cast<std::uint8_t>(tensor.dtype));
    w.numbers(tensor.shape);
  }
  w.numbers(s.arguments);
  w.flag(s.is_weighted);
  w.flag(s.divides_by_all);
  w.flag(s.needs_all);
}

Signature read_signature(Reader& r) {
  Signature s;
  s.collective = r.value_or_fail(collective_from_wire(r.number<std::uint8_t>()), Collective::kBarrier);
  s.op = r.value_or_fail(reduce_op_from_wire(r.number<std::uint8_t>()), ReduceOp::kSum);
  s.root = r.number<std::int32_t>();
  s.prescale = r.number<double>();
  s.postscale = r.number<double>();
  r.list(s.tensors, sizeof(std::uint8_t) + sizeof(std::uint32_t), [&r](TensorSignature& tensor) {
    tensor.dtype = r.value_or_fail(data_type_from_wire(r.number<std::uint8_t>()), DataType::kUInt8);
    tensor.shape = r.numbers<std::int64_t>();
    if (tensor.shape.size() > kMaxDimensions) r.fail();
  });
  if (s.tensors.size() > kMaxTensorsPerRequest) r.fail();
  s.arguments = r.numbers<std::int64_t>();
  s.is_weighted = r.flag();
  s.divides_by_all = r.flag();
  s.needs_all = r.flag();
  return s;
}

ErrorKind read_error_kind(Reader& r) {
  const auto value = r.number<std::uint8_t>();
  if (value < 1 || value > static_cast<std::uint8_t>(ErrorKind::kInternal)) r.fail();
  return r.ok() ? static_cast<ErrorKind>(value) : ErrorKind::kInternal;
}

void write(Writer& w, const RequestMessage& m) {
  w.flag(m.is_cacheable);
  w.flag(m.is_deferrable);
  w.number(m.priority);
  w.text(m.name);
  write(w, m.signature);
}
void read(Reader& r, RequestMessage& m) {
  m.is_cacheable = r.flag();
  m.is_deferrable = r.flag();
  m.priority = r.number<std::int32_t>();
  m.name = r.text(kMaxNameBytes);
  m.signature = read_signature(r);
}

std::vector<std::byte> read_some_bytes(Reader& r) {
  std::vector<std::byte> bytes = r.bytes();
  if (bytes.empty()) r.fail();
  return bytes;
}

void write(Writer& w, const ReadyMessage& m) {
  w.number(static_cast<std::uint32_t>(m.items.size()));
  for (const ReadyMessage::Item& item : m.items) {
    const bool has_input = !item.input.empty();
    w.number(item.cache_id);
    w.number(static_cast<std::uint8_t>((item.is_deferrable ? 1 : 0) | (has_input ? kHasInput : 0)));
    if (has_input) w.bytes(item.input);
  }
}
void read(Reader& r, ReadyMessage& m) {
  r.list(m.items, sizeof(std::uint32_t) + 1, [&r](ReadyMessage::Item& item) {
    item.cache_id = r.number<std::uint32_t>();
    const auto flags = r.number<std::uint8_t>();
    if (flags > (1 | kHasInput)) r.fail();
    item.is_deferrable = (flags & 1) != 0;
    if ((flags & kHasInput) != 0) item.input = read_some_bytes(r);
  });
}

void write(Writer& w, const GroupsMessage& m) {
  w.number(m.plan);
  w.numbers(m.groups);
}
void read(Reader& r, GroupsMessage& m) {
  m.plan = r.number<std::uint32_t>();
  m.groups = r.numbers<std::uint32_t>();
}

void write(Writer& w, const DuplicateMessage& m) { w.text(m.name); }
void read(Reader& r, DuplicateMessage& m) { m.name = r.text(kMaxNameBytes); }

void write(Writer& w, const InputMessage& m) {
  w.number(m.cache_id);
  w.number(m.round);
  w.bytes(m.input);
}
void read(Reader& r, InputMessage& m) {
  m.cache_id = r.number<std::uint32_t>();
  m.round = r.number<std::uint64_t>();
  m.input = read_some_bytes(r);
}

void write(Writer& w, const NoInputMessage& m) {
  w.number(m.cache_id);
  w.number(m.round);
}
void read(Reader& r, NoInputMessage& m) {
  m.cache_id = r.number<std::uint32_t>();
  m.round = r.number<std::uint64_t>();
}
void write(Writer& w, const ForgottenMessage& m) { w.numbers(m.kept); }
void read(Reader& r, ForgottenMessage& m) { m.kept = r.numbers<std::uint32_t>(); }
void write(Writer& /*w*/, const NoMoreInputsMessage& /*m*/) {}
void read(Reader& /*r*/, NoMoreInputsMessage& /*m*/) {}

void write(Writer& /*w*/, const WaitingMessage& /*m*/) {}
void read(Reader& /*r*/, WaitingMessage& /*m*/) {}
void write(Writer& w, const JoinMessage& m) { w.number(m.nth); }
void read(Reader& r, JoinMessage& m) { m.nth = r.number<std::uint64_t>(); }
void write(Writer& w, const ByeMessage& m) {
  w.number(static_cast<std::uint32_t>(m.lanes.size()));
  for (const ByeMessage::LaneEnd& end : m.lanes) {
    w.number(end.lane);
    w.number(end.log_index);
  }
}
void read(Reader& r, ByeMessage& m) {
  r.list(m.lanes, sizeof(LaneId) + sizeof(std::uint64_t), [&r](ByeMessage::LaneEnd& end) {
    end.lane = r.number<LaneId>();
    end.log_index = r.number<std::uint64_t>();
  });
}
void write(Writer& /*w*/, const ByeAckMessage& /*m*/) {}
void read(Reader& /*r*/, ByeAckMessage& /*m*/) {}
void write(Writer& /*w*/, const PingMessage& /*m*/) {}
void read(Reader& /*r*/, PingMessage& /*m*/) {}
void write(Writer& /*w*/, const PongMessage& /*m*/) {}
void read(Reader& /*r*/, PongMessage& /*m*/) {}

void write(Writer& w, const AbortMessage& m) {
  w.number(static_cast<std::uint8_t>(m.kind));
  w.text(m.text);
}
void read(Reader& r, AbortMessage& m) {
  m.kind = read_error_kind(r);
  m.text = r.text(kMaxFrameBytes);
}

void write(Writer& w, const NoticeMessage& m) { w.text(m.text); }
void read(Reader& r, NoticeMessage& m) { m.text = r.text(kMaxFrameBytes); }

Check to_check(Reader& r, std::uint8_t value) {
  if (value > static_cast<std::uint8_t>(Check::kCompare)) r.fail();
  return r.ok() ? static_cast<Check>(value) : Check::kNone;
}

void write(Writer& w, const ExecuteEntry& entry) {
  w.number(static_cast<std::uint32_t>(entry.items.size()));
  for (const ExecuteItem& item : entry.items) {
    w.number(item.cache_id);
    w.flag(item.is_defined_here);
    w.number(static_cast<std::uint8_t>(item.direct));
    if (!item.is_defined_here) continue;
    w.text(item.name);
    w.number(static_cast<std::uint32_t>(item.first_dims.size()));
    for (const auto& dims : item.first_dims) w.numbers(dims);
    w.numbers(item.absent);
    if (!item.absent.empty()) write(w, item.signature);
  }
  const bool has_inputs = !entry.inputs.empty();
  w.number(static_cast<std::uint8_t>(static_cast<std::uint8_t>(entry.check) | (has_inputs ? kHasInputs : 0)));
  if (has_inputs) w.bytes(entry.inputs);
}
void read(Reader& r, ExecuteEntry& entry) {
  r.list(entry.items, sizeof(std::uint32_t) + 2, [&r](ExecuteItem& item) {
    item.cache_id = r.number<std::uint32_t>();
    item.is_defined_here = r.flag();
    const auto direct = r.number<std::uint8_t>();
    if (direct > static_cast<std::uint8_t>(Direct::kByMessages)) r.fail();
    item.direct = static_cast<Direct>(direct);
    if (!item.is_defined_here) return;
    item.name = r.text(kMaxNameBytes);
    r.list(item.first_dims, sizeof(std::uint32_t), [&r](auto& dims) { dims = r.numbers<std::int64_t>(); });
    item.absent = r.numbers<std::int32_t>();
    if (!item.absent.empty()) item.signature = read_signature(r);
  });
  const auto last = r.number<std::uint8_t>();
  entry.check = to_check(r, last & static_cast<std::uint8_t>(~kHasInputs));
  if ((last & kHasInputs) != 0) entry.inputs = read_some_bytes(r);
}

void write(Writer& w, const FailEntry& entry) {
  w.text(entry.name);
  w.number(static_cast<std::uint8_t>(entry.kind));
  w.text(entry.text);
  w.number(static_cast<std::uint32_t>(entry.targets.size()));
  for (const RankRange& range : entry.targets) {
    w.number(range.first);
    w.number(range.last);
  }
}
void read(Reader& r, FailEntry& entry) {
  entry.name = r.text(kMaxNameBytes);
  entry.kind = read_error_kind(r);
  entry.text = r.text(kMaxFrameBytes);
  r.list(entry.targets, 2 * sizeof(std::int32_t), [&r](RankRange& range) {
    range.first = r.number<std::int32_t>();
    range.last = r.number<std::int32_t>();
  });
}

void write(Writer& w, const JoinedEntry& entry) { w.number(entry.last); }
void read(Reader& r, JoinedEntry& entry) { entry.last = r.number<std::int32_t>(); }
void write(Writer& /*w*/, const EndEntry& /*entry*/) {}
void read(Reader& /*r*/, EndEntry& /*entry*/) {}

void write(Writer& w, const PlanEntry& entry) {
  w.number(entry.plan);
  w.number(static_cast<std::uint32_t>(entry.groups.size()));
  for (const auto& cache_ids : entry.groups) w.numbers(cache_ids);
}
void read(Reader& r, PlanEntry& entry) {
  entry.plan = r.number<std::uint32_t>();
  r.list(entry.groups, sizeof(std::uint32_t), [&r](auto& cache_ids) { cache_ids = r.numbers<std::uint32_t>(); });
}

void write(Writer& w, const ExecuteGroupsEntry& entry) {
  w.number(entry.plan);
  w.numbers(entry.groups);
  w.number(static_cast<std::uint8_t>(entry.check));
}
void read(Reader& r, ExecuteGroupsEntry& entry) {
  entry.plan = r.number<std::uint32_t>();
  entry.groups = r.numbers<std::uint32_t>();
  entry.check = to_check(r, r.number<std::uint8_t>());
}

void write(Writer& w, const ForgetEntry& entry) { w.numbers(entry.cache_ids); }
void read(Reader& r, ForgetEntry& entry) { entry.cache_ids = r.numbers<std::uint32_t>(); }
void write(Writer& w, const CancelEntry& entry) {
  w.number(entry.cache_id);
  w.number(entry.round);
}
void read(Reader& r, CancelEntry& entry) {
  entry.cache_id = r.number<std::uint32_t>();
  entry.round = r.number<std::uint64_t>();
}

// A variant is its index and its value.
template <typename... Alternatives>
void write_variant(Writer& w, const std::variant<Alternatives...>& value) {
  w.number(static_cast<std::uint8_t>(value.index()));
  std::visit([&w](const auto& alternative) { write(w, alternative); }, value);
}

template <typename Variant, std::size_t kIndex = 0>
void read_variant(Reader& r, std::size_t index, Variant& value) {
  if constexpr (kIndex == std::variant_size_v<Variant>) {
    r.fail();
  } else if (index == kIndex) {
    read(r, value.template emplace<kIndex>());
  } else {
    read_variant<Variant, kIndex + 1>(r, index, value);
  }
}

void write(Writer& w, const RelayedMessage& m) {
  w.number(static_cast<std::uint32_t>(m.items.size()));
  for (const RelayedMessage::Item& item : m.items) {
    w.numbers(item.ranks);
    write_variant(w, item.report);
  }
  w.flag(m.is_waiting);
}
void read(Reader& r, RelayedMessage& m) {
  r.list(m.items, sizeof(std::uint32_t) + 1, [&r](RelayedMessage::Item& item) {
    item.ranks = r.numbers<std::int32_t>();
    read_variant(r, r.number<std::uint8_t>(), item.report);
  });
  m.is_waiting = r.flag();
}

void write(Writer& w, const LogMessage& m) {
  w.number(static_cast<std::uint32_t>(m.entries.size()));
  for (const LogEntry& entry : m.entries) write_variant(w, entry);
}
void read(Reader& r, LogMessage& m) {
  r.list(m.entries, kLeastEntryBytes, [&r](LogEntry& entry) { read_variant(r, r.number<std::uint8_t>(), entry); });
}

// A request fits, however many tensors of however many dimensions it has.
constexpr std::size_t kMostBytesOfSignature =
    kMaxTensorsPerRequest * (2 * sizeof(std::uint64_t) + kMaxDimensions * sizeof(std::int64_t));
static_assert(kMaxNameBytes + kMostBytesOfSignature < kMaxFrameBytes);

}  // namespace

void append_body(LaneId lane, const Message& message, std::vector<std::byte>& out) {
  Writer w(out);
  w.number(lane);
  write_variant(w, message);
}

Result<Envelope> decode_body(std::span<const std::byte> body) {
  Reader r(body);
  Envelope envelope;
  envelope.lane = r.number<LaneId>();
  read_variant(r, r.number<std::uint8_t>(), envelope.message);
  if (!r.ok() || !r.at_end()) {
    return Status::internal("a control frame of " + std::to_string(body.size()) + " bytes is malformed");
  }
  return envelope;
}

}  // namespace ciranda
