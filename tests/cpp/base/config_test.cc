// Settings: every row of the table read from its variable, from Horovod's, or left at its default; bad values refused
// with the variable, the value and the range.
#include "base/config.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ciranda {
namespace {

using Environment = std::map<std::string, std::string>;

Result<Config> read(const Environment& environment) {
  return read_config([&environment](const std::string& variable) -> std::optional<std::string> {
    const auto found = environment.find(variable);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  });
}

// What makes any single other setting acceptable: a world that is large enough and knows where it meets.
Environment large_world() {
  return {{"CIRANDA_SIZE", "1048576"},
          {"CIRANDA_LOCAL_SIZE", "1048576"},
          {"CIRANDA_CROSS_SIZE", "1048576"},
          {"CIRANDA_STORE", "127.0.0.1:1"},
          {"CIRANDA_SECRET_FILE", "/dev/fd/3"}};
}

Result<Config> read_with(const std::string& variable, const std::string& value) {
  Environment environment = variable == "CIRANDA_ENGINE" ? Environment() : large_world();  // which it contradicts
  environment[variable] = value;
  return read(environment);
}

std::string refusal(const Result<Config>& result) {
  if (result.ok()) return "accepted";
  EXPECT_EQ(result.status().kind(), ErrorKind::kInvalidArgument);
  return result.status().message();
}

std::string value_of(const Config& config, const Setting& setting) {
  switch (setting.type) {
    case SettingType::kInteger: return std::to_string(config.*setting.integer);
    case SettingType::kReal: return std::to_string(config.*setting.real);
    case SettingType::kBoolean: return config.*setting.boolean ? "1" : "0";
    case SettingType::kWord:
    case SettingType::kPorts:
    case SettingType::kText: return config.*setting.text;
  }
  return "?";
}

// A good value that is not the default, and how it then reads.
std::pair<std::string, std::string> other_value(const Setting& setting) {
  const Config defaults;
  switch (setting.type) {
    case SettingType::kInteger: {
      const std::string value = setting.name.ends_with("_BYTES") ? "8192" : "9";
      return {value, value};
    }
    case SettingType::kReal: return {"2.5", std::to_string(2.5)};
    case SettingType::kBoolean: return defaults.*setting.boolean ? std::pair("no", "0") : std::pair("yes", "1");
    case SettingType::kWord: return {std::string(setting.words.back()), std::string(setting.words.back())};
    case SettingType::kPorts: return {"4000-4100", "4000-4100"};
    case SettingType::kText: return {"any text", "any text"};
  }
  return {};
}

class EverySetting : public ::testing::TestWithParam<Setting> {
 protected:
  const Setting& setting() const { return GetParam(); }
  std::string variable() const { return "CIRANDA_" + std::string(setting().name); }
};

TEST_P(EverySetting, HasATypeARangeAndAMeaning) {
  const int n_fields = (setting().integer != nullptr ? 1 : 0) + (setting().real != nullptr ? 1 : 0) +
                       (setting().boolean != nullptr ? 1 : 0) + (setting().text != nullptr ? 1 : 0);
  EXPECT_EQ(n_fields, 1);
  EXPECT_FALSE(setting().meaning.empty());
  EXPECT_EQ(setting().meaning.back(), '.');
  EXPECT_LE(setting().lowest, setting().highest);
}

TEST_P(EverySetting, HasADefaultThatItWouldAccept) {
  const Result<Config> unset = read({});
  ASSERT_TRUE(unset.ok()) << unset.status().message();
  const std::string value = value_of(unset.value(), setting());
  EXPECT_EQ(value, value_of(Config{}, setting()));
  const Result<Config> set = read({{variable(), value}});
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(value_of(set.value(), setting()), value);
}

TEST_P(EverySetting, IsReadFromItsVariable) {
  const auto [given, expected] = other_value(setting());
  const Result<Config> result = read_with(variable(), given);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(value_of(result.value(), setting()), expected);
}

TEST_P(EverySetting, KeepsItsDefaultWhenEmpty) {
  const Result<Config> result = read({{variable(), ""}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(value_of(result.value(), setting()), value_of(Config{}, setting()));
}

TEST_P(EverySetting, FallsBackToHorovodsName) {
  if (setting().horovod_name.empty()) return;
  const std::string horovod(setting().horovod_name);
  EXPECT_EQ(horovod.rfind("HOROVOD_", 0), 0U);
  const auto [given, expected] = other_value(setting());
  Environment environment = large_world();
  environment.erase(variable());
  if (setting().name == "SIZE") environment["CIRANDA_SIZE"].clear();
  environment[horovod] = given;
  environment.erase("CIRANDA_" + std::string(setting().name));
  const Result<Config> result = read(environment);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(value_of(result.value(), setting()), expected);

  environment[variable()] = value_of(Config{}, setting());  // its own name comes first
  if (environment[variable()].empty()) environment[variable()] = "own";
  const Result<Config> both = read(environment);
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_EQ(value_of(both.value(), setting()), environment[variable()]);
}

TEST_P(EverySetting, RefusesBadValuesByNameValueAndRange) {
  std::vector<std::string> bad;
  std::string expected;
  if (setting().type == SettingType::kText) return;
  if (setting().type == SettingType::kBoolean) {
    bad = {"2", "perhaps", "TRUE ", "-1"};
    expected = "is not a yes or no (1, 0, true, false, on, off)";
  } else if (setting().type == SettingType::kWord) {
    bad = {"no such word", "0", " ", std::string(setting().words[0]) + " "};
    expected = "is not one of " + std::string(setting().words[0]);
  } else if (setting().type == SettingType::kPorts) {
    bad = {"many", "0", "4100-4000", "4000-", "-4000", "4000-70000", "4000:4100", " 4000"};
    expected = "is not a range of ports such as 4000-4100";
  } else {
    bad = {"many", "1x", " 1", "1 ", "0x10", "+1", "-2", "nan", "1e300", "99999999999999999999999"};
    expected = setting().type == SettingType::kInteger ? "is not a whole number between" : "is not a number between";
    if (setting().type == SettingType::kInteger) bad.insert(bad.end(), {"1.5", "1e3"});
  }
  for (const std::string& value : bad) {
    const std::string message = refusal(read_with(variable(), value));
    EXPECT_EQ(message.rfind(variable() + "='" + value + "' " + expected, 0), 0U) << message;
    EXPECT_NE(message.find("Unset it or give it such a value."), std::string::npos) << message;
    if (setting().horovod_name.empty()) continue;
    Environment environment = large_world();
    environment.erase(variable());
    environment[std::string(setting().horovod_name)] = value;
    const std::string of_horovod = refusal(read(environment));
    EXPECT_EQ(of_horovod.rfind(std::string(setting().horovod_name) + "='" + value + "'", 0), 0U) << of_horovod;
  }
}

TEST_P(EverySetting, AcceptsTheEndsOfItsRangeAndNothingBeyond) {
  if (setting().type != SettingType::kInteger) return;
  const auto lowest = static_cast<std::int64_t>(setting().lowest);
  const auto highest = static_cast<std::int64_t>(setting().highest);
  const std::int64_t inside = setting().name.ends_with("RANK") ? highest - 1 : highest;  // a rank is less than a size
  EXPECT_EQ(refusal(read_with(variable(), std::to_string(inside))), "accepted");
  EXPECT_NE(refusal(read_with(variable(), std::to_string(lowest - 1))), "accepted");
  EXPECT_NE(refusal(read_with(variable(), std::to_string(highest + 1))), "accepted");
}

std::string name_of(const ::testing::TestParamInfo<Setting>& row) { return std::string(row.param.name); }
INSTANTIATE_TEST_SUITE_P(Settings, EverySetting, ::testing::ValuesIn(settings().begin(), settings().end()), name_of);

TEST(Settings, HaveDifferentNames) {
  std::set<std::string_view> names;
  std::set<std::string_view> horovod_names;
  std::size_t n_horovod = 0;
  for (const Setting& setting : settings()) {
    names.insert(setting.name);
    if (setting.horovod_name.empty()) continue;
    horovod_names.insert(setting.horovod_name);
    ++n_horovod;
  }
  EXPECT_EQ(names.size(), settings().size());
  EXPECT_EQ(horovod_names.size(), n_horovod);
}

TEST(Settings, ReadYesAndNoInEveryForm) {
  for (const char* yes : {"1", "true", "yes", "on", "True", "YES"}) {
    const auto result = read({{"CIRANDA_SHARED_MEMORY", yes}});
    ASSERT_TRUE(result.ok());
    EXPECT_TRUE(result.value().shared_memory) << yes;
  }
  for (const char* no : {"0", "false", "no", "off", "False", "OFF"}) {
    const auto result = read({{"CIRANDA_SHARED_MEMORY", no}});
    ASSERT_TRUE(result.ok());
    EXPECT_FALSE(result.value().shared_memory) << no;
  }
}

TEST(Settings, TakeWordsInAnyCase) {
  const auto result = read({{"HOROVOD_LOG_LEVEL", "DEBUG"}, {"CIRANDA_SIMD", "Avx2"}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value().log_level, "debug");
  EXPECT_EQ(result.value().simd, "avx2");
}

TEST(Settings, NameTheRange) {
  EXPECT_EQ(refusal(read({{"CIRANDA_SIMD", "sse9"}})),
            "CIRANDA_SIMD='sse9' is not one of baseline, avx2 or avx512. Unset it or give it such a value.");
  EXPECT_EQ(refusal(read({{"CIRANDA_SLOT_BYTES", "12"}})),
            "CIRANDA_SLOT_BYTES='12' is not a whole number between 4096 and 1073741824. Unset it or give it such a "
            "value.");
  EXPECT_EQ(refusal(read({{"HOROVOD_START_TIMEOUT", "0"}})),
            "HOROVOD_START_TIMEOUT='0' is not a number between 0.1 and 1e+09. Unset it or give it such a value.");
}

// --- checks of several settings together

TEST(Settings, RefuseARankOutsideTheWorld) {
  Environment environment = large_world();
  environment["CIRANDA_SIZE"] = "4";
  environment["CIRANDA_RANK"] = "4";
  EXPECT_EQ(refusal(read(environment)), "CIRANDA_RANK=4 must be less than CIRANDA_SIZE=4.");
  environment["CIRANDA_RANK"] = "3";
  EXPECT_EQ(refusal(read(environment)), "accepted");
}

TEST(Settings, RefuseALocalOrCrossRankOutsideItsWorld) {
  Environment environment = large_world();
  environment["CIRANDA_LOCAL_SIZE"] = "2";
  environment["CIRANDA_LOCAL_RANK"] = "2";
  EXPECT_EQ(refusal(read(environment)), "CIRANDA_LOCAL_RANK=2 must be less than CIRANDA_LOCAL_SIZE=2.");
  environment["CIRANDA_LOCAL_RANK"] = "1";
  environment["CIRANDA_CROSS_SIZE"] = "3";
  environment["CIRANDA_CROSS_RANK"] = "7";
  EXPECT_EQ(refusal(read(environment)), "CIRANDA_CROSS_RANK=7 must be less than CIRANDA_CROSS_SIZE=3.");
}

TEST(Settings, RefuseASlotThatIsNoMultipleOfAPage) {
  EXPECT_EQ(refusal(read({{"CIRANDA_SLOT_BYTES", "5000"}})), "CIRANDA_SLOT_BYTES=5000 must be a multiple of 4096.");
  EXPECT_EQ(refusal(read({{"CIRANDA_SEGMENT_BYTES", "1"}})), "CIRANDA_SEGMENT_BYTES=1 must be a multiple of 4096.");
}

TEST(Settings, RefuseAWorldWithoutAMeetingPlaceOrASecret) {
  for (const char* missing : {"CIRANDA_STORE", "CIRANDA_SECRET_FILE"}) {
    Environment environment = large_world();
    environment.erase(missing);
    environment["CIRANDA_SIZE"] = "2";
    EXPECT_EQ(refusal(read(environment)),
              "CIRANDA_SIZE=2 but CIRANDA_STORE or CIRANDA_SECRET_FILE is not set: start the ranks with 'ciranda run', "
              "which sets them.");
  }
  EXPECT_EQ(refusal(read({{"CIRANDA_SIZE", "1"}})), "accepted");
}

TEST(Settings, RefuseAWorldOfSeveralWhereOneIsMeant) {
  Environment environment = large_world();
  environment["CIRANDA_SIZE"] = "2";
  environment["CIRANDA_ENGINE"] = "none";
  EXPECT_EQ(refusal(read(environment)),
            "CIRANDA_SIZE=2, but CIRANDA_ENGINE=none says that a world of one is meant: unset one of them.");
  environment["CIRANDA_SIZE"] = "1";
  EXPECT_EQ(refusal(read(environment)), "accepted");
}

TEST(Settings, RefuseACheckOfDataThatIsAlwaysMade) {
  EXPECT_EQ(refusal(read({{"CIRANDA_CHECK_DATA", "1"}})),
            "CIRANDA_CHECK_DATA is no setting any more: all bytes between hosts are checked, unless CIRANDA_WIRE is "
            "none. Unset it.");
  EXPECT_EQ(refusal(read({{"CIRANDA_CHECK_DATA", ""}})), "accepted");
}

TEST(Settings, AreReadFromTheProcess) {
  ASSERT_EQ(setenv("CIRANDA_CACHE_CAPACITY", "123", 1), 0);  // NOLINT(concurrency-mt-unsafe): no other thread
  const Result<Config> result = read_config();
  ASSERT_EQ(unsetenv("CIRANDA_CACHE_CAPACITY"), 0);  // NOLINT(concurrency-mt-unsafe)
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value().cache_capacity, 123);
}

}  // namespace
}  // namespace ciranda
