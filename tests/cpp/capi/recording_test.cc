// Recordings by the C ABI: what was called, how it went, and what happens to those that read it wrongly or late.
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "capi/world_of_one.hpp"

namespace ciranda::capi {
namespace {

class RecordingOfC : public WorldOfOne {
 protected:
  ciranda_status sum(const char* name) {
    const std::array<std::int64_t, 1> shape{2};
    const ciranda_tensor tensor{values_.data(), values_.data(), shape.data(), 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0,
                                nullptr};
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.name = name;
    request.tensors = &tensor;
    request.tensors_count = 1;
    return ciranda_run(world_, &request, nullptr);
  }

  std::array<float, 2> values_{};
};

TEST_F(RecordingOfC, HasWhatWasCalledInItsTime) {
  ASSERT_EQ(sum("before"), CIRANDA_OK);
  ciranda_recording* recording = nullptr;
  ASSERT_EQ(ciranda_record_start(world_, &recording), CIRANDA_OK);
  for (const char* const name : {"a", "b", "c"}) ASSERT_EQ(sum(name), CIRANDA_OK);
  std::array<ciranda_record, 2> records{};
  ASSERT_EQ(ciranda_record_read(recording, records.data(), sizeof(ciranda_record), 2), 2U);
  EXPECT_STREQ(records[0].name, "a");
  EXPECT_STREQ(records[1].name, "b");
  EXPECT_EQ(records[0].collective, CIRANDA_ALLREDUCE);
  EXPECT_EQ(records[0].status, CIRANDA_OK);
  EXPECT_EQ(records[0].path, CIRANDA_PATH_PLAN);
  EXPECT_EQ(records[0].n_bytes, 8U);
  EXPECT_LE(records[0].submitted_ns, records[0].agreed_ns);
  EXPECT_LE(records[0].done_ns, records[1].submitted_ns);
  leave();  // which a recording outlives
  ASSERT_EQ(ciranda_record_read(recording, records.data(), sizeof(ciranda_record), 2), 1U);
  EXPECT_STREQ(records[0].name, "c");
  EXPECT_EQ(ciranda_record_read(recording, records.data(), sizeof(ciranda_record), 2), 0U);
  EXPECT_EQ(ciranda_record_lost(recording), 0U);
  ciranda_record_stop(recording);
}

TEST_F(RecordingOfC, TellsWhatWasForgotten) {
  ciranda_recording* recording = nullptr;
  ASSERT_EQ(ciranda_record_start(world_, &recording), CIRANDA_OK);
  constexpr std::size_t kCalls = 20'000;
  for (std::size_t i = 0; i < kCalls; ++i) ASSERT_EQ(sum("x"), CIRANDA_OK);
  std::vector<ciranda_record> records(kCalls);
  const std::size_t n_read = ciranda_record_read(recording, records.data(), sizeof(ciranda_record), kCalls);
  EXPECT_GT(n_read, 1000U);
  EXPECT_EQ(n_read + ciranda_record_lost(recording), kCalls);
  ciranda_record_stop(recording);
}

// Of a program that was compiled against a newer header.
TEST_F(RecordingOfC, FillsLongerStructs) {
  struct Longer {
    ciranda_record record;
    std::int64_t more;
  };
  ciranda_recording* recording = nullptr;
  ASSERT_EQ(ciranda_record_start(world_, &recording), CIRANDA_OK);
  for (const char* const name : {"a", "b"}) ASSERT_EQ(sum(name), CIRANDA_OK);
  std::array<Longer, 2> records{};
  records[0].more = records[1].more = 7;
  ASSERT_EQ(ciranda_record_read(recording, &records[0].record, sizeof(Longer), 2), 2U);
  EXPECT_STREQ(records[1].record.name, "b");
  EXPECT_EQ(records[0].more + records[1].more, 0);
  ciranda_record_stop(recording);
}

TEST_F(RecordingOfC, RefusesWhatCannotBe) {
  ciranda_recording* recording = nullptr;
  EXPECT_EQ(ciranda_record_start(nullptr, &recording), CIRANDA_INVALID_ARGUMENT);
  EXPECT_EQ(recording, nullptr);
  EXPECT_EQ(ciranda_record_start(world_, nullptr), CIRANDA_INVALID_ARGUMENT);
  ciranda_record record{};
  EXPECT_EQ(ciranda_record_read(nullptr, &record, sizeof(record), 1), 0U);
  EXPECT_EQ(ciranda_record_lost(nullptr), 0U);
  ciranda_record_stop(nullptr);
  ASSERT_EQ(ciranda_record_start(world_, &recording), CIRANDA_OK);
  ASSERT_EQ(sum("x"), CIRANDA_OK);
  EXPECT_EQ(ciranda_record_read(recording, nullptr, sizeof(record), 1), 0U);
  EXPECT_EQ(ciranda_record_read(recording, &record, sizeof(record) - 1, 1), 0U);
  EXPECT_EQ(ciranda_record_read(recording, &record, sizeof(record), 1), 1U);
  ciranda_record_stop(recording);
}

// The setting makes a timeline of programs without Python, too.
TEST(TimelineOfC, IsAskedForByTheSetting) {
  std::string path = "/tmp/ciranda_timeline_XXXXXX";
  ::close(::mkstemp(path.data()));
  std::vector<ciranda_setting> settings(std::begin(kAlone), std::end(kAlone));
  settings.push_back({"CIRANDA_TIMELINE", path.c_str()});
  ciranda_options options = alone();
  options.settings = settings.data();
  options.settings_count = settings.size();
  ciranda_context* world = nullptr;
  ASSERT_EQ(ciranda_init(&options, &world, nullptr, 0), CIRANDA_OK);
  ciranda_request barrier = CIRANDA_REQUEST_INIT;
  barrier.collective = CIRANDA_BARRIER;
  barrier.name = "end";
  EXPECT_EQ(ciranda_run(world, &barrier, nullptr), CIRANDA_OK);
  ciranda_shutdown(world);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_NE(text.str().find(R"("NEGOTIATE_BARRIER")"), std::string::npos) << text.str();
  EXPECT_TRUE(text.str().ends_with("\n]\n"));
  settings.back().value = "/nonexistent/timeline";
  std::array<char, 200> message{};
  EXPECT_EQ(ciranda_init(&options, &world, message.data(), message.size()), CIRANDA_INVALID_ARGUMENT);
  EXPECT_STREQ(message.data(), "the timeline cannot be written to /nonexistent/timeline: No such file or directory");
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace ciranda::capi
