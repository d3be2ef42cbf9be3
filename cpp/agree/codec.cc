#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "agree/frames.hpp"

namespace ciranda {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are written in the memory order of the host");

// Bits beside other values of their byte: an input, or all inputs, follow.
constexpr std::uint8_t kHasInput = 2;
constexpr std::uint8_t kHasInputs = 4;

template <typename T, typename Wanted>
concept Is = std::same_as<std::remove_const_t<T>, Wanted>;

// --- what is in each, in this order; for writing and for reading

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
  io(m.is_cacheable, m.is_deferrable, m.priority, m.name, m.signature);
}
void code(auto& io, Is<ReadyMessage::Item> auto& m) {
  auto flags = static_cast<std::uint8_t>((m.is_deferrable ? 1 : 0) | (m.input.empty() ? 0 : kHasInput));
  io(m.cache_id, flags);
  io.require(flags <= (1 | kHasInput));
  io.set(m.is_deferrable, (flags & 1) != 0);
  if ((flags & kHasInput) != 0) io(m.input);
}
void code(auto& io, Is<ReadyMessage> auto& m) { io(m.items); }
void code(auto& io, Is<GroupsMessage> auto& m) { io(m.plan, m.groups); }
void code(auto& io, Is<DuplicateMessage> auto& m) { io(m.name); }
void code(auto& io, Is<JoinMessage> auto& m) { io(m.nth); }
void code(auto& io, Is<InputMessage> auto& m) { io(m.cache_id, m.round, m.input); }
void code(auto& io, Is<ForgottenMessage> auto& m) { io(m.kept); }
void code(auto& io, Is<NoInputMessage> auto& m) { io(m.cache_id, m.round); }
void code(auto& io, Is<RelayedMessage::Item> auto& m) { io(m.ranks, m.report); }
void code(auto& io, Is<RelayedMessage> auto& m) { io(m.items, m.is_waiting); }

void code(auto& io, Is<ByeMessage::LaneEnd> auto& m) { io(m.lane, m.log_index); }
void code(auto& io, Is<ByeMessage> auto& m) { io(m.lanes); }
void code(auto& io, Is<AbortMessage> auto& m) { io(m.kind, m.text); }

void code(auto& io, Is<ExecuteItem> auto& m) {
  io(m.cache_id, m.is_defined_here, m.direct);
  if (!m.is_defined_here) return;
  io(m.name, m.first_dims, m.absent);
  if (!m.absent.empty()) io(m.signature);
}
void code(auto& io, Is<ExecuteEntry> auto& m) {
  auto last = static_cast<std::uint8_t>(static_cast<std::uint8_t>(m.check) | (m.inputs.empty() ? 0 : kHasInputs));
  io(m.items, last);
  const auto check = static_cast<Check>(last & ~kHasInputs);
  io.require(check <= Check::kCompare);
  io.set(m.check, check);
  if ((last & kHasInputs) != 0) io(m.inputs);
}
void code(auto& io, Is<RankRange> auto& m) { io(m.first, m.last); }
void code(auto& io, Is<FailEntry> auto& m) { io(m.name, m.kind, m.text, m.targets); }
void code(auto& io, Is<JoinedEntry> auto& m) { io(m.last); }
void code(auto& io, Is<PlanEntry> auto& m) { io(m.plan, m.groups); }
void code(auto& io, Is<ExecuteGroupsEntry> auto& m) { io(m.plan, m.groups, m.check); }
void code(auto& io, Is<CancelEntry> auto& m) { io(m.cache_id, m.round); }
void code(auto& io, Is<ForgetEntry> auto& m) { io(m.cache_ids); }
void code(auto& io, Is<LogMessage> auto& m) { io(m.entries); }

// --- how

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out) {}

  void operator()(const auto&... values) { (write(values), ...); }
  void require(bool /*is_so*/) {}
  void set(const auto& /*field*/, auto /*value*/) {}

 private:
  template <typename T>
  void write(const T& value) {
    if constexpr (std::same_as<T, bool> || std::is_enum_v<T>) {
      number(static_cast<std::uint8_t>(value));
    } else if constexpr (std::is_arithmetic_v<T>) {
      number(value);
    } else if constexpr (!std::is_empty_v<T>) {
      code(*this, value);
    }
  }
  void write(const std::string& value) { chars(value); }
  void write(const std::vector<std::byte>& value) { chars(value); }
  void write(const Payload& value) { chars(value.bytes()); }
  template <typename T>
  void write(const std::vector<T>& values) {
    number(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) write(value);
  }
  // Its index and its value.
  template <typename... Alternatives>
  void write(const std::variant<Alternatives...>& value) {
    number(static_cast<std::uint8_t>(value.index()));
    std::visit([this](const auto& alternative) { this->write(alternative); }, value);
  }

  template <typename T>
  void number(T value) {
    const std::size_t at = out_.size();
    out_.resize(at + sizeof value);
    std::memcpy(out_.data() + at, &value, sizeof value);
  }
  // A text, or bytes.
  template <typename Chars>
  void chars(const Chars& value) {
    number(static_cast<std::uint32_t>(value.size()));
    const auto bytes = std::as_bytes(std::span(value));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }

  std::vector<std::byte>& out_;
};

bool is_one(Collective value) { return value < Collective{kNumCollectives}; }
bool is_one(ReduceOp value) { return reduce_op_from_wire(static_cast<std::uint8_t>(value)).has_value(); }
bool is_one(DataType value) { return data_type_from_wire(static_cast<std::uint8_t>(value)).has_value(); }
bool is_one(ErrorKind value) { return value > ErrorKind::kOk && value <= ErrorKind::kInternal; }
bool is_one(Check value) { return value <= Check::kCompare; }
bool is_one(Direct value) { return value <= Direct::kByMessages; }

// What does not fit is no error at once: it stays failed, which is to be asked in the end, and gives zeros.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  void operator()(auto&... values) { (read(values), ...); }
  void require(bool is_so) {
    if (!is_so) ok_ = false;
  }
  template <typename T>
  void set(T& field, T value) {
    field = value;
  }

 private:
  template <typename T>
  void read(T& value) {
    if constexpr (std::same_as<T, bool>) {
      const auto byte = number<std::uint8_t>();
      require(byte <= 1);
      value = byte == 1;
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(number<std::uint8_t>());
      require(is_one(value));
    } else if constexpr (std::is_arithmetic_v<T>) {
      value = number<T>();
    } else if constexpr (!std::is_empty_v<T>) {
      code(*this, value);
      if constexpr (requires { value.name; }) require(value.name.size() <= kMaxNameBytes);
    }
  }
  void read(std::string& value) { chars(value); }
  // Where there may be none, something else says so.
  void read(std::vector<std::byte>& value) {
    chars(value);
    require(!value.empty());
  }
  void read(Payload& value) {
    std::vector<std::byte> bytes;
    read(bytes);
    value = Payload(std::move(bytes));
  }
  // Items may be larger in memory than on the wire: a list of them grows as they are read, so that a frame of rubbish
  // costs no memory.
  template <typename T>
  void read(std::vector<T>& values) {
    const auto n = number<std::uint32_t>();
    require(n <= rest_.size() / (std::is_arithmetic_v<T> ? sizeof(T) : 1));
    if (ok_) values.reserve(std::is_arithmetic_v<T> ? n : std::min(n, 8U));
    for (std::uint32_t i = 0; i < n && ok_; ++i) read(values.emplace_back());
  }
  template <typename... Alternatives>
  void read(std::variant<Alternatives...>& value) {
    read_alternative(number<std::uint8_t>(), value);
  }
  template <std::size_t kIndex = 0, typename Variant>
  void read_alternative(std::size_t index, Variant& value) {
    if constexpr (kIndex == std::variant_size_v<Variant>) {
      ok_ = false;
    } else if (index == kIndex) {
      read(value.template emplace<kIndex>());
    } else {
      read_alternative<kIndex + 1>(index, value);
    }
  }

  template <typename T>
  T number() {
    T value{};
    if (take(sizeof value)) std::memcpy(&value, taken_.data(), sizeof value);
    return value;
  }
  template <typename Chars>
  void chars(Chars& value) {
    if (!take(number<std::uint32_t>())) return;
    const auto* data = reinterpret_cast<const typename Chars::value_type*>(taken_.data());
    value.assign(data, data + taken_.size());
  }
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

// A request fits, however many tensors of however many dimensions it has.
constexpr std::size_t kMostBytesOfSignature =
    kMaxTensorsPerRequest * (2 * sizeof(std::uint64_t) + kMaxDimensions * sizeof(std::int64_t));
static_assert(kMaxNameBytes + kMostBytesOfSignature < kMaxFrameBytes);

}  // namespace

void append_body(LaneId lane, const Message& message, std::vector<std::byte>& out) {
  Writer w(out);
  w(lane, message);
}

Result<Envelope> decode_body(std::span<const std::byte> body) {
  Reader r(body);
  Envelope envelope;
  r(envelope.lane, envelope.message);
  if (!r.ok() || !r.at_end()) {
    return Status::internal("a control frame of " + std::to_string(body.size()) + " bytes is malformed");
  }
  return envelope;
}

}  // namespace ciranda
