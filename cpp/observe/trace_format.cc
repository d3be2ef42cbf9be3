#include "observe/trace_format.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstddef>

#include "base/json_string.hpp"

namespace ciranda {
namespace {

// The arguments of put(): text, numbers, times (written in microseconds, the viewer's unit), and JSON strings.

void append(std::string_view text, std::string& to) { to += text; }

void append(std::int64_t number, std::string& to) {
  std::array<char, 24> digits{};
  to.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

void append(std::chrono::nanoseconds time, std::string& to) {
  append(time.count() / 1000, to);
  const auto rest = static_cast<int>(time.count() % 1000);
  to += {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
         static_cast<char>('0' + rest % 10)};
}

struct Quoted {
  std::string_view text;
};
void append(Quoted string, std::string& to) { append_json_string(string.text, to); }

void put(std::string& to, const auto&... parts) { (append(parts, to), ...); }

// True if the names of this collective's calls already contain the collective.
bool names_itself(Collective collective) {
  const Subject subject = info(collective).subject;
  return subject == Subject::kJoin || subject == Subject::kSets;
}

// Whether no coordinator has learned of the ranks' calls.
bool is_in_memory(Path path) { return path == Path::kDirect || path == Path::kRepeated || path == Path::kInMemory; }

std::string upper_case(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return upper;
}

}  // namespace

void TraceFormat::open_event(std::string_view name, std::string_view phase, int row, std::string& to) {
  put(to, is_first_ ? "[\n" : ",\n", R"({"name": )", Quoted{name}, R"(, "ph": ")", phase, R"(", "pid": )", rank_,
      R"(, "tid": )", row);
  is_first_ = false;
}

void TraceFormat::describe(std::string_view what, int row, std::string_view key, std::string_view value,
                           std::string& to) {
  open_event(what, "M", row, to);
  put(to, R"(, "args": {")", key, R"(": )", value, "}}");
}

void TraceFormat::begin(std::int64_t epoch_us, std::string& to) {
  describe("process_name", 0, "name", "\"rank " + std::to_string(rank_) + "\"", to);
  constexpr std::string_view kStart = "start_time_since_epoch_in_micros";
  describe(kStart, 0, kStart, std::to_string(epoch_us), to);
}

TraceFormat::Row& TraceFormat::row_of(const Record& record, std::string& to) {
  row_name_.clear();
  if (!names_itself(record.collective)) put(row_name_, to_string(record.collective), ".");
  row_name_ += record.name;
  const auto [row, is_new] = rows_.try_emplace(row_name_, Row{static_cast<int>(rows_.size())});
  if (is_new) {
    std::string name;
    append_json_string(row_name_, name);
    describe("thread_name", row->second.number, "name", name, to);
  }
  return row->second;
}

void TraceFormat::add_span(std::string_view prefix, const Record& record, int row, std::int64_t from_ns,
                           std::int64_t to_ns, std::string& to) {
  open_event(std::string(prefix) + upper_case(to_string(record.collective)), "X", row, to);
  put(to, R"(, "ts": )", std::chrono::nanoseconds(from_ns), R"(, "dur": )", std::chrono::nanoseconds(to_ns - from_ns));
  put(to, R"(, "args": {"tensor": )", Quoted{row_name_}, R"(, "bytes": )", static_cast<std::int64_t>(record.n_bytes));
  put(to, R"(, "path": ")", to_string(record.path), "\"");
  if (record.process_set != 0) put(to, R"(, "process_set": )", record.process_set);
  if (record.lane != 0) put(to, R"(, "lane": )", record.lane);
  if (record.outcome != ErrorKind::kOk) put(to, R"(, "error": ")", to_string(record.outcome), "\"");
  to += "}}";
}

void TraceFormat::add_tick(int rank, int row, std::int64_t at_ns, std::string& to) {
  open_event(std::to_string(rank), "X", row, to);
  put(to, R"(, "ts": )", std::chrono::nanoseconds(at_ns), R"(, "dur": 0, "args": {"rank": )", rank, "}}");
}

// Ranks may arrive at the next call of the name while rank 0 completes this one.
std::int64_t TraceFormat::begin_of(const Record& record, std::int64_t agreed_ns, Row& row) const {
  std::int64_t begin = record[Stage::kSubmitted];
  for (const std::int64_t at_ns : row.arrivals_ns) {
    if (at_ns <= agreed_ns) begin = std::min(begin, at_ns);
  }
  std::erase_if(row.arrivals_ns, [&](std::int64_t at_ns) { return at_ns <= agreed_ns; });
  return std::min(std::max(begin, row.until_ns), record[Stage::kSubmitted]);
}

void TraceFormat::add(const Record& record, std::string& to) {
  Row& of_call = row_of(record, to);
  const int row = of_call.number;
  if (record.arrived) {
    of_call.arrivals_ns.push_back(record[Stage::kReady]);
    return add_tick(*record.arrived, row, record[Stage::kReady], to);
  }
  const std::int64_t submitted = record[Stage::kSubmitted];
  const std::int64_t end = std::max(submitted, record[Stage::kDone]);
  const std::int64_t agreed = record[Stage::kAgreed] == 0 ? end : std::clamp(record[Stage::kAgreed], submitted, end);
  add_span("NEGOTIATE_", record, row, begin_of(record, agreed, of_call), agreed, to);
  if (is_in_memory(record.path)) add_tick(rank_, row, std::clamp(record[Stage::kReady], submitted, agreed), to);
  of_call.until_ns = end;
  if (agreed == end) return;
  if (marks_cycles_ && agreed > last_agreed_ns_) {
    last_agreed_ns_ = agreed;
    open_event("CYCLE_START", "i", 0, to);
    put(to, R"(, "s": "g", "ts": )", std::chrono::nanoseconds(agreed), "}");
  }
  add_span("", record, row, agreed, end, to);
}

void TraceFormat::add_lost(std::uint64_t n_records, std::int64_t at_ns, std::string& to) {
  open_event("RECORDS_LOST", "i", 0, to);
  put(to, R"(, "s": "g", "ts": )", std::chrono::nanoseconds(at_ns), R"(, "args": {"calls": )",
      static_cast<std::int64_t>(n_records), "}}");
}

}  // namespace ciranda
