#include "negotiate/codec.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace ciranda {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are written in the memory order of the host");

// An entry of the log is at least its kind.
constexpr std::size_t kLeastEntryBytes = sizeof(std::uint8_t);

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out) {}

  template <typename T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t at = out_.size();
    out_.resize(at + sizeof value);
    std::memcpy(out_.data() + at, &value, sizeof value);
  }
  void flag(bool value) { number<std::uint8_t>(value ? 1 : 0); }
  void text(const std::string& value) {
    number(static_cast<std::uint32_t>(value.size()));
    const auto* data = reinterpret_cast<const std::byte*>(value.data());
    out_.insert(out_.end(), data, data + value.size());
  }
  template <typename T>
  void numbers(const std::vector<T>& values) {
    number(static_cast<std::uint32_t>(values.size()));
    for (const T value : values) number(value);
  }

 private:
  std::vector<std::byte>& out_;
};

// Reads until something does not fit; then it stays failed and gives zeros.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  void fail() { ok_ = false; }

  template <typename T>
  T number() {
    T value{};
    if (!take(sizeof value)) return value;
    std::memcpy(&value, taken_.data(), sizeof value);
    return value;
  }
  bool flag() {
    const auto value = number<std::uint8_t>();
    if (value > 1) fail();
    return value == 1;
  }
  std::string text(std::size_t at_most = kMaxFrameBytes) {
    const auto size = number<std::uint32_t>();
    if (size > at_most || !take(size)) {
      fail();
      return {};
    }
    return {reinterpret_cast<const char*>(taken_.data()), size};
  }
  // A list's length, no larger than what the rest of the frame can hold.
  std::uint32_t length(std::size_t item_bytes) {
    const auto n = number<std::uint32_t>();
    if (n > rest_.size() / item_bytes) {
      fail();
      return 0;
    }
    return n;
  }
  template <typename T>
  std::vector<T> numbers() {
    std::vector<T> values(length(sizeof(T)));
    for (T& value : values) value = number<T>();
    return values;
  }
  // A list of items that are larger in memory than on the wire: it grows as they are read, so that a frame of rubbish
  // costs no memory.
  template <typename T, typename ReadItem>
  void list(std::vector<T>& items, std::size_t least_item_bytes, ReadItem read_item) {
    const auto n = length(least_item_bytes);
    for (std::uint32_t i = 0; i < n && ok_; ++i) read_item(items.emplace_back());
  }
  template <typename T>
  T value_or_fail(std::optional<T> value, T otherwise) {
    if (!value) fail();
    return value.value_or(otherwise);
  }

 private:
  bool take(std::size_t n_bytes) {
    if (!ok_ || n_bytes > rest_.size()) {
      ok_ = false;
      return false;
    }
    taken_ = rest_.first(n_bytes);
    rest_ = rest_.subspan(n_bytes);
    return true;
  }

  std::span<const std::byte> rest_;
  std::span<const std::byte> taken_;
  bool ok_ = true;
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
  w.text(m.name);
  write(w, m.signature);
}
void read(Reader& r, RequestMessage& m) {
  m.is_cacheable = r.flag();
  m.is_deferrable = r.flag();
  m.name = r.text(kMaxNameBytes);
  m.signature = read_signature(r);
}

void write(Writer& w, const ReadyMessage& m) {
  w.number(static_cast<std::uint32_t>(m.items.size()));
  for (const ReadyMessage::Item& item : m.items) {
    w.number(item.slot);
    w.flag(item.is_deferrable);
  }
}
void read(Reader& r, ReadyMessage& m) {
  r.list(m.items, sizeof(std::uint32_t) + 1, [&r](ReadyMessage::Item& item) {
    item.slot = r.number<std::uint32_t>();
    item.is_deferrable = r.flag();
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

void write(Writer& /*w*/, const WaitingMessage& /*m*/) {}
void read(Reader& /*r*/, WaitingMessage& /*m*/) {}
void write(Writer& /*w*/, const JoinMessage& /*m*/) {}
void read(Reader& /*r*/, JoinMessage& /*m*/) {}
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
  m.text = r.text();
}

void write(Writer& w, const NoticeMessage& m) { w.text(m.text); }
void read(Reader& r, NoticeMessage& m) { m.text = r.text(); }

Check read_check(Reader& r) {
  const auto check = r.number<std::uint8_t>();
  if (check > static_cast<std::uint8_t>(Check::kCompare)) r.fail();
  return r.ok() ? static_cast<Check>(check) : Check::kNone;
}

void write(Writer& w, const ExecuteEntry& entry) {
  w.number(static_cast<std::uint32_t>(entry.items.size()));
  for (const ExecuteItem& item : entry.items) {
    w.number(item.slot);
    w.flag(item.is_defined_here);
    if (!item.is_defined_here) continue;
    w.text(item.name);
    w.number(static_cast<std::uint32_t>(item.first_dims.size()));
    for (const auto& dims : item.first_dims) w.numbers(dims);
    w.numbers(item.absent);
    if (!item.absent.empty()) write(w, item.signature);
  }
  w.number(static_cast<std::uint8_t>(entry.check));
}
void read(Reader& r, ExecuteEntry& entry) {
  r.list(entry.items, sizeof(std::uint32_t) + 1, [&r](ExecuteItem& item) {
    item.slot = r.number<std::uint32_t>();
    item.is_defined_here = r.flag();
    if (!item.is_defined_here) return;
    item.name = r.text(kMaxNameBytes);
    r.list(item.first_dims, sizeof(std::uint32_t), [&r](auto& dims) { dims = r.numbers<std::int64_t>(); });
    item.absent = r.numbers<std::int32_t>();
    if (!item.absent.empty()) item.signature = read_signature(r);
  });
  entry.check = read_check(r);
}

void write(Writer& w, const FailEntry& entry) {
  w.text(entry.name);
  w.number(static_cast<std::uint8_t>(entry.kind));
  w.text(entry.text);
  w.numbers(entry.targets);
}
void read(Reader& r, FailEntry& entry) {
  entry.name = r.text(kMaxNameBytes);
  entry.kind = read_error_kind(r);
  entry.text = r.text();
  entry.targets = r.numbers<std::int32_t>();
}

void write(Writer& w, const JoinedEntry& entry) { w.number(entry.last); }
void read(Reader& r, JoinedEntry& entry) { entry.last = r.number<std::int32_t>(); }
void write(Writer& /*w*/, const EndEntry& /*entry*/) {}
void read(Reader& /*r*/, EndEntry& /*entry*/) {}

void write(Writer& w, const PlanEntry& entry) {
  w.number(entry.plan);
  w.number(static_cast<std::uint32_t>(entry.groups.size()));
  for (const auto& slots : entry.groups) w.numbers(slots);
}
void read(Reader& r, PlanEntry& entry) {
  entry.plan = r.number<std::uint32_t>();
  r.list(entry.groups, sizeof(std::uint32_t), [&r](auto& slots) { slots = r.numbers<std::uint32_t>(); });
}

void write(Writer& w, const ExecuteGroupsEntry& entry) {
  w.number(entry.plan);
  w.numbers(entry.groups);
  w.number(static_cast<std::uint8_t>(entry.check));
}
void read(Reader& r, ExecuteGroupsEntry& entry) {
  entry.plan = r.number<std::uint32_t>();
  entry.groups = r.numbers<std::uint32_t>();
  entry.check = read_check(r);
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
    write_variant(w, item.announcement);
  }
  w.flag(m.is_waiting);
}
void read(Reader& r, RelayedMessage& m) {
  r.list(m.items, sizeof(std::uint32_t) + 1, [&r](RelayedMessage::Item& item) {
    item.ranks = r.numbers<std::int32_t>();
    read_variant(r, r.number<std::uint8_t>(), item.announcement);
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

template <typename Item>
std::pair<std::vector<Item>, std::vector<Item>> halves_of(const std::vector<Item>& items) {
  const auto middle = items.begin() + static_cast<std::ptrdiff_t>(items.size() / 2);
  return {{items.begin(), middle}, {middle, items.end()}};
}

// Two messages that mean the same as this one; nothing if it cannot be cut.
std::optional<std::pair<Message, Message>> cut_in_two(const Message& message) {
  if (const auto* log = std::get_if<LogMessage>(&message); log != nullptr && log->entries.size() > 1) {
    auto [first, second] = halves_of(log->entries);
    return std::pair<Message, Message>{LogMessage{std::move(first)}, LogMessage{std::move(second)}};
  }
  if (const auto* ready = std::get_if<ReadyMessage>(&message); ready != nullptr && ready->items.size() > 1) {
    auto [first, second] = halves_of(ready->items);
    return std::pair<Message, Message>{ReadyMessage{std::move(first)}, ReadyMessage{std::move(second)}};
  }
  if (const auto* relayed = std::get_if<RelayedMessage>(&message); relayed != nullptr && relayed->items.size() > 1) {
    auto [first, second] = halves_of(relayed->items);
    return std::pair<Message, Message>{RelayedMessage{std::move(first), false},
                                       RelayedMessage{std::move(second), relayed->is_waiting}};
  }
  return std::nullopt;
}

std::string name_in(const Message& message) {
  const auto* log = std::get_if<LogMessage>(&message);
  const auto* entry = log != nullptr && !log->entries.empty() ? std::get_if<ExecuteEntry>(&log->entries[0]) : nullptr;
  return entry != nullptr && !entry->items.empty() ? " for '" + entry->items[0].name + "'" : "";
}

AbortMessage too_large(const Message& message, std::size_t n_bytes, std::size_t max_bytes) {
  return {ErrorKind::kInvalidArgument, "a control message" + name_in(message) + " of " + std::to_string(n_bytes) +
                                           " bytes is larger than the " + std::to_string(max_bytes) +
                                           " that are possible: make groups of fewer tensors."};
}

}  // namespace

void append_frame(LaneId lane, const Message& message, std::vector<std::byte>& out, std::size_t max_bytes) {
  const std::size_t start = out.size();
  Writer w(out);
  w.number(std::uint32_t{0});
  w.number(lane);
  write_variant(w, message);
  const std::size_t n_bytes = out.size() - start - kFrameHeaderBytes;
  if (n_bytes <= max_bytes || std::holds_alternative<AbortMessage>(message)) {
    const auto length = static_cast<std::uint32_t>(n_bytes);
    std::memcpy(out.data() + start, &length, sizeof length);
    return;
  }
  out.resize(start);
  if (const auto parts = cut_in_two(message)) {
    append_frame(lane, parts->first, out, max_bytes);
    append_frame(lane, parts->second, out, max_bytes);
  } else {
    append_frame(lane, too_large(message, n_bytes, max_bytes), out, max_bytes);
  }
}

Result<Envelope> decode_frame(std::span<const std::byte> body) {
  Reader r(body);
  Envelope envelope;
  envelope.lane = r.number<LaneId>();
  read_variant(r, r.number<std::uint8_t>(), envelope.message);
  if (!r.ok() || !r.at_end()) {
    return Status::internal("a control frame of " + std::to_string(body.size()) + " bytes is malformed");
  }
  return envelope;
}

void FrameReader::append(std::span<const std::byte> bytes) {
  if (consumed_ >= buffer_.size() - consumed_) {  // what is moved is no more than what was read
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(consumed_));
    consumed_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

std::optional<Result<Envelope>> FrameReader::next() {
  const auto rest = std::span<const std::byte>(buffer_).subspan(consumed_);
  if (rest.size() < kFrameHeaderBytes) return std::nullopt;
  std::uint32_t length = 0;
  std::memcpy(&length, rest.data(), sizeof length);
  if (length > kMaxFrameBytes) {
    return Result<Envelope>(Status::internal("a control frame claims " + std::to_string(length) + " bytes"));
  }
  if (rest.size() - kFrameHeaderBytes < length) return std::nullopt;
  consumed_ += kFrameHeaderBytes + length;
  return decode_frame(rest.subspan(kFrameHeaderBytes, length));
}

}  // namespace ciranda
