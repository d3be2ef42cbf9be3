// The events of a record, letter by letter.
#include "observe/trace_format.hpp"

#include <gtest/gtest.h>

#include <string>

namespace ciranda {
namespace {

Record record(std::string name, std::int64_t submitted, std::int64_t agreed, std::int64_t done) {
  Record r;
  r.name = std::move(name);
  r.n_bytes = 8;
  r.path = agreed == 0 ? Path::kNone : Path::kDirect;
  r.at_ns = {submitted, 0, 0, agreed, 0, done};
  return r;
}

TEST(TraceFormat, HasARowATensorAndTwoSpansACall) {
  TraceFormat format(0, true);
  std::string text;
  format.begin(1'700'000'000'000'000, text);
  format.add(record("w\"", 1'000, 3'250, 4'007), text);
  format.add(record("w\"", 5'000, 6'000, 7'000), text);
  format.end(text);
  EXPECT_EQ(text, R"([
{"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "rank 0"}},
{"name": "start_time_since_epoch_in_micros", "ph": "M", "pid": 0, "tid": 0, "args": {"start_time_since_epoch_in_micros": 1700000000000000}},
{"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "allreduce.w\""}},
{"name": "NEGOTIATE_ALLREDUCE", "ph": "X", "pid": 0, "tid": 0, "ts": 1.000, "dur": 2.250, "args": {"tensor": "allreduce.w\"", "bytes": 8, "path": "direct"}},
{"name": "0", "ph": "X", "pid": 0, "tid": 0, "ts": 1.000, "dur": 0, "args": {"rank": 0}},
{"name": "CYCLE_START", "ph": "i", "pid": 0, "tid": 0, "s": "g", "ts": 3.250},
{"name": "ALLREDUCE", "ph": "X", "pid": 0, "tid": 0, "ts": 3.250, "dur": 0.757, "args": {"tensor": "allreduce.w\"", "bytes": 8, "path": "direct"}},
{"name": "NEGOTIATE_ALLREDUCE", "ph": "X", "pid": 0, "tid": 0, "ts": 5.000, "dur": 1.000, "args": {"tensor": "allreduce.w\"", "bytes": 8, "path": "direct"}},
{"name": "0", "ph": "X", "pid": 0, "tid": 0, "ts": 5.000, "dur": 0, "args": {"rank": 0}},
{"name": "CYCLE_START", "ph": "i", "pid": 0, "tid": 0, "s": "g", "ts": 6.000},
{"name": "ALLREDUCE", "ph": "X", "pid": 0, "tid": 0, "ts": 6.000, "dur": 1.000, "args": {"tensor": "allreduce.w\"", "bytes": 8, "path": "direct"}}
]
)");
}

TEST(TraceFormat, MarksATimeOnce) {
  TraceFormat format(0, true);
  std::string text;
  for (const char* const name : {"a", "b"}) format.add(record(name, 1, 2, 3), text);
  const auto first = text.find("CYCLE_START");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("CYCLE_START", first + 1), std::string::npos);
  TraceFormat unmarked(0, false);
  std::string without;
  unmarked.add(record("a", 1, 2, 3), without);
  EXPECT_EQ(without.find("CYCLE_START"), std::string::npos);
}

TEST(TraceFormat, SaysWhatFailedAndWhere) {
  TraceFormat format(3, false);
  Record r = record("join.0", 5, 0, 9'000);
  r.collective = Collective::kJoin;
  r.outcome = ErrorKind::kRanksLost;
  r.process_set = 2;
  r.lane = 1;
  std::string text;
  format.add(r, text);
  EXPECT_EQ(text, R"([
{"name": "thread_name", "ph": "M", "pid": 3, "tid": 0, "args": {"name": "join.0"}},
{"name": "NEGOTIATE_JOIN", "ph": "X", "pid": 3, "tid": 0, "ts": 0.005, "dur": 8.995, "args": {"tensor": "join.0", "bytes": 8, "path": "none", "process_set": 2, "lane": 1, "error": "RanksLost"}})");
}

// As Horovod's: at the time at which the coordinator has learned of it.
TEST(TraceFormat, HasATickForEachRankThatIsReady) {
  TraceFormat format(0, false);
  std::string text;
  const auto arrive = [&](int rank, std::int64_t at_ns) {
    Record arrival = record("w", 0, 0, 0);
    arrival.arrived = rank;
    arrival.at_ns[static_cast<std::size_t>(Stage::kReady)] = at_ns;
    format.add(arrival, text);
  };
  const auto negotiate = [&](std::int64_t submitted, std::int64_t agreed, std::int64_t done) {
    Record call = record("w", submitted, agreed, done);
    call.path = Path::kPlan;
    text.clear();
    format.add(call, text);
    return text.substr(0, text.find(", \"args\""));
  };
  EXPECT_TRUE(format.wants_arrivals());
  arrive(12, 1'000);
  EXPECT_EQ(text, R"([
{"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "allreduce.w"}},
{"name": "12", "ph": "X", "pid": 0, "tid": 0, "ts": 1.000, "dur": 0, "args": {"rank": 12}})");
  arrive(0, 2'000);
  arrive(12, 6'000);  // at the next call, before this one is complete here
  EXPECT_EQ(negotiate(2'000, 3'000, 7'000),
            ",\n"
            R"({"name": "NEGOTIATE_ALLREDUCE", "ph": "X", "pid": 0, "tid": 0, "ts": 1.000, "dur": 2.000)");
  arrive(0, 8'000);
  EXPECT_EQ(negotiate(8'000, 9'000, 10'000),
            ",\n"
            R"({"name": "NEGOTIATE_ALLREDUCE", "ph": "X", "pid": 0, "tid": 0, "ts": 7.000, "dur": 2.000)")
      << "from the end of the call before";
  EXPECT_EQ(negotiate(11'000, 12'000, 13'000),
            ",\n"
            R"({"name": "NEGOTIATE_ALLREDUCE", "ph": "X", "pid": 0, "tid": 0, "ts": 11.000, "dur": 1.000)");
}

TEST(TraceFormat, SaysHowManyAreMissing) {
  TraceFormat format(0, false);
  std::string text;
  format.add_lost(12, 4'000, text);
  EXPECT_EQ(text,
            "[\n"
            R"({"name": "RECORDS_LOST", "ph": "i", "pid": 0, "tid": 0, "s": "g", "ts": 4.000, "args": {"calls": 12}})");
}

}  // namespace
}  // namespace ciranda
