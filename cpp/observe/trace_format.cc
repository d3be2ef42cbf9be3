#include "observe/trace_format.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdio>

namespace ciranda {
namespace {

void append(std::int64_t number, std::string& to) {
  std::array<char, 24> digits{};
  to.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

// Of the viewer's unit: a microsecond.
void append_us(std::int64_t nanoseconds, std::string& to) {
  append(nanoseconds / 1000, to);
  const auto rest = static_cast<int>(nanoseconds % 1000);
  to += {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
         static_cast<char>('0' + rest % 10)};
}

// Its names say already which collective it is.
bool names_itself(Collective collective) {
  const Subject subject = info(collective).subject;
  return subject == Subject::kJoin || subject == Subject::kSets;
}

std::string upper_case(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return upper;
}

// Bytes of the character that begins here; 0 if none does. Encodings that are longer than needed, and surrogates, are
// no characters.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t n_bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < n_bytes) return 0;
  for (std::size_t i = 1; i < n_bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
  }
  const unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  return byte(1) >= least && byte(1) <= most ? n_bytes : 0;
}

void append_control(char character, std::string& to) {
  std::array<char, 8> escaped{};
  std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(character));
  to += escaped.data();
}

}  // namespace

void append_json_string(std::string_view text, std::string& to) {
  to += '"';
  while (!text.empty()) {
    const std::size_t n_bytes = character_bytes(text);
    const char first = text.front();
    if (n_bytes == 0) {
      to += "\\ufffd";
    } else if (first == '"' || first == '\\') {
      to += '\\';
      to += first;
    } else if (n_bytes == 1 && first < ' ') {
      append_control(first, to);
    } else {
      to += text.substr(0, n_bytes);
    }
    text.remove_prefix(std::max<std::size_t>(n_bytes, 1));
  }
  to += '"';
}

void TraceFormat::open_event(std::string_view name, std::string_view phase, int row, std::string& to) {
  to += is_first_ ? "[\n" : ",\n";
  is_first_ = false;
  to += R"({"name": )";
  append_json_string(name, to);
  to += R"(, "ph": ")";
  to += phase;
  to += R"(", "pid": )";
  append(rank_, to);
  to += R"(, "tid": )";
  append(row, to);
}

void TraceFormat::describe(std::string_view what, int row, std::string_view key, std::string_view value,
                           std::string& to) {
  open_event(what, "M", row, to);
  to += R"(, "args": {")";
  to += key;
  to += R"(": )";
  to += value;
  to += "}}";
}

void TraceFormat::begin(std::int64_t epoch_us, std::string& to) {
  describe("process_name", 0, "name", "\"rank " + std::to_string(rank_) + "\"", to);
  constexpr std::string_view kStart = "start_time_since_epoch_in_micros";
  describe(kStart, 0, kStart, std::to_string(epoch_us), to);
}

int TraceFormat::row_of(const Record& record, std::string& to) {
  row_name_.clear();
  if (!names_itself(record.collective)) {
    row_name_ += to_string(record.collective);
    row_name_ += '.';
  }
  row_name_ += record.name;
  const auto [row, is_new] = rows_.try_emplace(row_name_, static_cast<int>(rows_.size()));
  if (is_new) {
    std::string name;
    append_json_string(row_name_, name);
    describe("thread_name", row->second, "name", name, to);
  }
  return row->second;
}

void TraceFormat::add_span(std::string_view prefix, const Record& record, int row, std::int64_t from_ns,
                           std::int64_t to_ns, std::string& to) {
  open_event(std::string(prefix) + upper_case(to_string(record.collective)), "X", row, to);
  to += R"(, "ts": )";
  append_us(from_ns, to);
  to += R"(, "dur": )";
  append_us(to_ns - from_ns, to);
  to += R"(, "args": {"tensor": )";
  append_json_string(row_name_, to);
  to += R"(, "bytes": )";
  append(static_cast<std::int64_t>(record.n_bytes), to);
  to += R"(, "path": ")";
  to += to_string(record.path);
  to += '"';
  if (record.process_set != 0) {
    to += R"(, "process_set": )";
    append(record.process_set, to);
  }
  if (record.lane != 0) {
    to += R"(, "lane": )";
    append(record.lane, to);
  }
  if (record.outcome != ErrorKind::kOk) {
    to += R"(, "error": ")";
    to += to_string(record.outcome);
    to += '"';
  }
  to += "}}";
}

void TraceFormat::add(const Record& record, std::string& to) {
  const int row = row_of(record, to);
  const std::int64_t begin = record[Stage::kSubmitted];
  const std::int64_t end = std::max(begin, record[Stage::kDone]);
  const std::int64_t agreed = record[Stage::kAgreed] == 0 ? end : std::clamp(record[Stage::kAgreed], begin, end);
  add_span("NEGOTIATE_", record, row, begin, agreed, to);
  if (agreed == end) return;
  if (marks_cycles_ && agreed > last_agreed_ns_) {
    last_agreed_ns_ = agreed;
    open_event("CYCLE_START", "i", 0, to);
    to += R"(, "s": "g", "ts": )";
    append_us(agreed, to);
    to += '}';
  }
  add_span("", record, row, agreed, end, to);
}

void TraceFormat::add_lost(std::uint64_t n_records, std::int64_t at_ns, std::string& to) {
  open_event("RECORDS_LOST", "i", 0, to);
  to += R"(, "s": "g", "ts": )";
  append_us(at_ns, to);
  to += R"(, "args": {"calls": )";
  append(static_cast<std::int64_t>(n_records), to);
  to += "}}";
}

}  // namespace ciranda
