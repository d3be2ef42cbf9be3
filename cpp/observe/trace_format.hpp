// TraceFormat: records as events of Chrome's trace viewer, in Horovod's words: a row for each tensor, as
// "allreduce.weights", and in it NEGOTIATE_ALLREDUCE from when the call was handed in until all ranks were known to
// have made it, then ALLREDUCE until it was done.
//
// Appends text, which is the beginning of a JSON array until end(). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "observe/recording.hpp"

namespace ciranda {

// Any bytes as a string of JSON. What is no UTF-8 becomes U+FFFD.
void append_json_string(std::string_view text, std::string& to);

class TraceFormat {
 public:
  // With `marks_cycles` also a mark, CYCLE_START, when ranks agreed: once for all that they agreed on together.
  TraceFormat(int rank, bool marks_cycles) : rank_(rank), marks_cycles_(marks_cycles) {}

  // `epoch_us`: the time of day at the zero of the records' clock.
  void begin(std::int64_t epoch_us, std::string& to);
  void add(const Record& record, std::string& to);
  // That so many are missing, at about this time.
  void add_lost(std::uint64_t n_records, std::int64_t at_ns, std::string& to);
  static void end(std::string& to) { to += "\n]\n"; }

 private:
  int row_of(const Record& record, std::string& to);
  void describe(std::string_view what, int row, std::string_view key, std::string_view value, std::string& to);
  void open_event(std::string_view name, std::string_view phase, int row, std::string& to);
  void add_span(std::string_view prefix, const Record& record, int row, std::int64_t from_ns, std::int64_t to_ns,
                std::string& to);

  int rank_;
  bool marks_cycles_;
  bool is_first_ = true;
  std::int64_t last_agreed_ns_ = 0;
  std::unordered_map<std::string, int> rows_;  // by the row's name
  std::string row_name_;                       // of the record at hand
};

}  // namespace ciranda
