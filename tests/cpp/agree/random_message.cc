#include "agree/random_message.hpp"

#include <bit>
#include <cstdint>
#include <string>

namespace ciranda::testing {
namespace {

// Makes up values of any type.
class Maker {
 public:
  explicit Maker(std::mt19937_64& random) : random_(random) {}

  std::uint64_t up_to(std::uint64_t highest) { return random_() % (highest + 1); }
  bool flag() { return up_to(1) == 1; }
  template <typename T>
  T number() {
    return static_cast<T>(random_());
  }
  double real() { return std::bit_cast<double>(random_()); }  // infinities and NaN too
  std::string text(std::size_t at_most) {
    std::string out(up_to(at_most), ' ');
    for (char& c : out) c = static_cast<char>(random_());
    return out;
  }
  ErrorKind error_kind() { return static_cast<ErrorKind>(1 + up_to(5)); }

  Signature signature() {
    Signature s;
    s.collective = static_cast<Collective>(up_to(kNumCollectives - 1));
    s.op = static_cast<ReduceOp>(up_to(kNumReduceOps - 1));
    s.root = number<std::int32_t>();
    s.prescale = real();
    s.postscale = real();
    s.arguments.resize(up_to(3));
    for (auto& argument : s.arguments) argument = number<std::int64_t>();
    s.is_weighted = up_to(1) == 1;
    s.divides_by_all = up_to(1) == 1;
    s.needs_all = up_to(1) == 1;
    s.tensors.resize(up_to(3));
    for (TensorSignature& tensor : s.tensors) {
      tensor.dtype = static_cast<DataType>(up_to(kNumDataTypes - 1));
      tensor.shape.resize(up_to(4));
      for (auto& dimension : tensor.shape) dimension = number<std::int64_t>();
    }
    return s;
  }

  void fill(RequestMessage& m) {
    m = {text(40), signature(), flag(), flag(), number<std::int32_t>(), number<HomeId>()};
  }
  void fill(ReadyMessage& m) {
    m.items.resize(up_to(5));
    for (auto& item : m.items) item = {number<std::uint32_t>(), flag()};
  }
  void fill(GroupsMessage& m) { m = {number<std::uint32_t>(), numbers()}; }
  void fill(DuplicateMessage& m) { m.name = text(kMaxNameBytes); }
  void fill(InputMessage& m) {
    std::vector<std::byte> input(1 + up_to(8));
    for (auto& byte : input) byte = number<std::byte>();
    m = {number<std::uint32_t>(), number<std::uint64_t>(), Payload(std::move(input))};
  }
  void fill(NoInputMessage& m) {
    m.cache_id = number<std::uint32_t>();
    m.round = number<std::uint64_t>();
  }
  void fill(ForgottenMessage& m) { m.kept = numbers(); }
  void fill(StandingMessage& m) { m = {number<std::uint64_t>(), number<std::uint32_t>()}; }
  void fill(NoMoreInputsMessage& /*m*/) {}
  void fill(LeaveMessage& /*m*/) {}
  void fill(TurnMessage& m) { m = {number<LaneId>(), number<std::uint64_t>()}; }
  void fill(WaitingMessage& /*m*/) {}
  void fill(JoinMessage& m) { m.nth = number<std::uint64_t>(); }
  void fill(ByeMessage& m) {
    m.lanes.resize(up_to(3));
    for (auto& end : m.lanes) end = {number<LaneId>(), number<std::uint64_t>(), number<std::int32_t>()};
  }
  void fill(ByeAckMessage& /*m*/) {}
  void fill(GoneMessage& /*m*/) {}
  void fill(DeparturesMessage& m) {
    m.departures.resize(up_to(3));
    for (auto& each : m.departures) {
      ByeMessage bye;
      fill(bye);
      each = {number<std::int32_t>(), std::move(bye.lanes)};
    }
  }
  void fill(RoutedMessage& m) {
    m = {number<std::int32_t>(), number<std::int32_t>(), static_cast<RoutedMessage::Kind>(up_to(2))};
  }
  void fill(AbortMessage& m) { m = {error_kind(), text(200)}; }
  void fill(PingMessage& /*m*/) {}
  void fill(PongMessage& /*m*/) {}
  void fill(RelayedMessage& m) {
    m.items.resize(up_to(4));
    for (RelayedMessage::Item& item : m.items) {
      item.ranks.resize(up_to(3));
      for (auto& rank : item.ranks) rank = number<std::int32_t>();
      item.report = report();
    }
    m.is_waiting = flag();
  }
  void fill(LogMessage& m) {
    m.entries.resize(up_to(4));
    for (LogEntry& entry : m.entries) entry = log_entry();
  }

 private:
  std::vector<std::uint32_t> numbers() {
    std::vector<std::uint32_t> numbers(up_to(4));
    for (auto& value : numbers) value = number<std::uint32_t>();
    return numbers;
  }
  template <typename T>
  T filled() {
    T message;
    fill(message);
    return message;
  }
  ReadyReport report() {
    switch (up_to(7)) {
      case 0: return filled<RequestMessage>();
      case 1: return filled<ReadyMessage>();
      case 2: return filled<GroupsMessage>();
      case 3: return filled<DuplicateMessage>();
      case 4: return filled<ForgottenMessage>();
      case 5: return filled<StandingMessage>();
      case 6: return filled<TurnMessage>();
      default: return JoinMessage{number<std::uint64_t>()};
    }
  }
  LogEntry log_entry() {
    switch (up_to(8)) {
      case 0: return execute_entry();
      case 1: return fail_entry();
      case 2: return JoinedEntry{number<std::int32_t>()};
      case 3: return PlanEntry{number<std::uint32_t>(), {numbers(), numbers()}};
      case 4: return ExecuteGroupsEntry{number<std::uint32_t>(), numbers(), static_cast<Check>(up_to(2))};
      case 5: return CancelEntry{number<std::uint32_t>(), number<std::uint64_t>()};
      case 6: return ForgetEntry{numbers()};
      case 7: return TurnEntry{number<LaneId>(), number<std::uint64_t>()};
      default: return EndEntry{number<std::int32_t>()};
    }
  }
  ExecuteEntry execute_entry() {
    ExecuteEntry entry;
    entry.items.resize(up_to(4));
    for (ExecuteItem& item : entry.items) {
      item.cache_id = number<std::uint32_t>();
      item.is_defined_here = flag();
      item.direct = static_cast<Direct>(up_to(2));
      if (!item.is_defined_here) continue;
      item.name = text(20);
      item.way = static_cast<Way>(up_to(1));
      item.first_dims.resize(up_to(2));
      for (auto& dims : item.first_dims) {
        dims.resize(up_to(4));
        for (auto& dim : dims) dim = number<std::int64_t>();
      }
      item.absent.resize(up_to(2));
      for (auto& rank : item.absent) rank = number<std::int32_t>();
      if (!item.absent.empty()) item.signature = signature();
    }
    entry.check = static_cast<Check>(up_to(2));
    return entry;
  }
  FailEntry fail_entry() {
    FailEntry entry{text(20), error_kind(), text(100), {}};
    entry.targets.resize(up_to(4));
    for (auto& range : entry.targets) range = {number<std::int32_t>(), number<std::int32_t>()};
    return entry;
  }

  std::mt19937_64& random_;
};

template <std::size_t kType = 0>
Message make(std::size_t type, Maker& maker) {
  if constexpr (kType + 1 < kNumMessageTypes) {
    if (type != kType) return make<kType + 1>(type, maker);
  }
  std::variant_alternative_t<kType, Message> message;
  maker.fill(message);
  return message;
}

bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

bool same(const Signature& a, const Signature& b) {
  return a.collective == b.collective && a.op == b.op && a.root == b.root && same(a.prescale, b.prescale) &&
         same(a.postscale, b.postscale) && a.arguments == b.arguments && a.is_weighted == b.is_weighted &&
         a.divides_by_all == b.divides_by_all && a.needs_all == b.needs_all && a.tensors == b.tensors;
}

template <typename T, typename Same>
bool same_lists(const std::vector<T>& a, const std::vector<T>& b, Same same_items) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_items(a[i], b[i])) return false;
  }
  return true;
}

bool same(const ExecuteItem& a, const ExecuteItem& b) {
  return a.cache_id == b.cache_id && a.is_defined_here == b.is_defined_here && a.name == b.name &&
         a.first_dims == b.first_dims && a.absent == b.absent && same(a.signature, b.signature) &&
         a.direct == b.direct && a.way == b.way;
}
bool same(const ExecuteEntry& a, const ExecuteEntry& b) {
  return a.check == b.check && same_lists(a.items, b.items, [](const auto& x, const auto& y) { return same(x, y); });
}
bool same(const FailEntry& a, const FailEntry& b) {
  return a.name == b.name && a.kind == b.kind && a.text == b.text && a.targets == b.targets;
}

bool same(const RequestMessage& a, const RequestMessage& b) {
  return a.name == b.name && same(a.signature, b.signature) && a.is_cacheable == b.is_cacheable &&
         a.is_deferrable == b.is_deferrable && a.priority == b.priority && a.home == b.home;
}
bool same(const ReadyMessage& a, const ReadyMessage& b) {
  return same_lists(a.items, b.items, [](const auto& x, const auto& y) {
    return x.cache_id == y.cache_id && x.is_deferrable == y.is_deferrable;
  });
}
bool same(const InputMessage& a, const InputMessage& b) {
  return a.cache_id == b.cache_id && a.round == b.round && std::ranges::equal(a.input.bytes(), b.input.bytes());
}
bool same(const NoInputMessage& a, const NoInputMessage& b) { return a.cache_id == b.cache_id && a.round == b.round; }
bool same(const StandingMessage& a, const StandingMessage& b) {
  return a.log_index == b.log_index && a.n_pending == b.n_pending;
}
bool same(const NoMoreInputsMessage& /*a*/, const NoMoreInputsMessage& /*b*/) { return true; }
bool same(const LeaveMessage& /*a*/, const LeaveMessage& /*b*/) { return true; }
bool same(const TurnMessage& a, const TurnMessage& b) { return a.lane == b.lane && a.log_index == b.log_index; }
bool same(const TurnEntry& a, const TurnEntry& b) { return a.lane == b.lane && a.log_index == b.log_index; }
bool same(const ForgottenMessage& a, const ForgottenMessage& b) { return a.kept == b.kept; }
bool same(const ForgetEntry& a, const ForgetEntry& b) { return a.cache_ids == b.cache_ids; }
bool same(const CancelEntry& a, const CancelEntry& b) { return a.cache_id == b.cache_id && a.round == b.round; }
bool same(const DuplicateMessage& a, const DuplicateMessage& b) { return a.name == b.name; }
bool same(const WaitingMessage& /*a*/, const WaitingMessage& /*b*/) { return true; }
bool same(const JoinMessage& a, const JoinMessage& b) { return a.nth == b.nth; }
bool same(const GroupsMessage& a, const GroupsMessage& b) { return a.plan == b.plan && a.groups == b.groups; }
bool same(const PlanEntry& a, const PlanEntry& b) { return a.plan == b.plan && a.groups == b.groups; }
bool same(const ExecuteGroupsEntry& a, const ExecuteGroupsEntry& b) {
  return a.plan == b.plan && a.groups == b.groups && a.check == b.check;
}
bool same(const JoinedEntry& a, const JoinedEntry& b) { return a.last == b.last; }
bool same(const EndEntry& a, const EndEntry& b) { return a.leaver == b.leaver; }
bool same_ends(const std::vector<ByeMessage::LaneEnd>& a, const std::vector<ByeMessage::LaneEnd>& b) {
  return same_lists(a, b, [](const auto& x, const auto& y) {
    return x.lane == y.lane && x.log_index == y.log_index && x.first_leaver == y.first_leaver;
  });
}
bool same(const ByeMessage& a, const ByeMessage& b) { return same_ends(a.lanes, b.lanes); }
bool same(const ByeAckMessage& /*a*/, const ByeAckMessage& /*b*/) { return true; }
bool same(const GoneMessage& /*a*/, const GoneMessage& /*b*/) { return true; }
bool same(const DeparturesMessage& a, const DeparturesMessage& b) {
  return same_lists(a.departures, b.departures,
                    [](const auto& x, const auto& y) { return x.rank == y.rank && same_ends(x.lanes, y.lanes); });
}
bool same(const RoutedMessage& a, const RoutedMessage& b) {
  return a.to == b.to && a.from == b.from && a.kind == b.kind;
}
bool same(const AbortMessage& a, const AbortMessage& b) { return a.kind == b.kind && a.text == b.text; }
bool same(const PingMessage& /*a*/, const PingMessage& /*b*/) { return true; }
bool same(const PongMessage& /*a*/, const PongMessage& /*b*/) { return true; }
bool same(const RelayedMessage& a, const RelayedMessage& b);
bool same(const LogMessage& a, const LogMessage& b);

template <typename Variant>
bool same_alternatives(const Variant& a, const Variant& b) {
  if (a.index() != b.index()) return false;
  return std::visit([&b](const auto& one) { return same(one, std::get<std::decay_t<decltype(one)>>(b)); }, a);
}
bool same(const RelayedMessage& a, const RelayedMessage& b) {
  return a.is_waiting == b.is_waiting && same_lists(a.items, b.items, [](const auto& x, const auto& y) {
           return x.ranks == y.ranks && same_alternatives(x.report, y.report);
         });
}
bool same(const LogMessage& a, const LogMessage& b) {
  return same_lists(a.entries, b.entries, [](const LogEntry& x, const LogEntry& y) { return same_alternatives(x, y); });
}

}  // namespace

Message random_message(std::size_t type, std::mt19937_64& random) {
  Maker maker(random);
  return make(type, maker);
}

bool are_equal(const Message& a, const Message& b) { return same_alternatives(a, b); }

}  // namespace ciranda::testing
