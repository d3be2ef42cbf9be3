// The file of measured costs: read back as written, found where the user's caches are, and refused if anything in it is
// not as it should be.
#include "base/costs_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

namespace ciranda {
namespace {

class CostsFileTest : public ::testing::Test {
 protected:
  CostsFileTest() {
    std::string name = ::testing::TempDir() + "costs.XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~CostsFileTest() override { std::filesystem::remove_all(folder_); }
  CostsFileTest(const CostsFileTest&) = delete;
  CostsFileTest& operator=(const CostsFileTest&) = delete;

  CostsFile file() const { return costs_file(folder_ + "/deep/er", environment()); }

  void write(const std::string& text) const { std::ofstream(file().path) << text; }
  std::string read() const {
    std::ifstream in(file().path);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string folder_;
};

HostCosts unusual() {
  HostCosts costs;
  std::uint64_t value = 77;
  for (const HostCost& each : kHostCosts) costs.*each.value = value++;
  return costs;
}

std::string place_in(std::map<std::string, std::string> variables) {
  const auto found = costs_file("", [&variables](const std::string& name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  });
  return found.path.empty() ? "" : std::filesystem::path(found.path).parent_path().string();
}

TEST_F(CostsFileTest, IsReadBackAsWritten) {
  const auto none = load_costs(file());
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none.value());
  for (const HostCosts& costs : {unusual(), HostCosts{}}) {
    ASSERT_TRUE(save_costs(file(), costs).ok());
    const auto read = load_costs(file());
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value(), costs);
  }
  const auto entries = std::filesystem::directory_iterator(folder_ + "/deep/er");
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "nothing is left beside it";
}

TEST_F(CostsFileTest, LiesWhereTheUsersCachesDo) {
  EXPECT_EQ(place_in({{"XDG_CACHE_HOME", "/cache"}, {"HOME", "/home/a"}}), "/cache/ciranda");
  EXPECT_EQ(place_in({{"XDG_CACHE_HOME", "relative"}, {"HOME", "/home/a"}}), "/home/a/.cache/ciranda");
  EXPECT_EQ(place_in({}), "");
  EXPECT_FALSE(save_costs(costs_file("", [](const auto&) { return std::nullopt; }), {}).ok());
}

TEST_F(CostsFileTest, DevNullIsNowhere) {
  const auto none = load_costs(costs_file("/dev/null", environment()));
  ASSERT_TRUE(none.ok()) << none.status().message();
  EXPECT_FALSE(none.value());
}

TEST_F(CostsFileTest, WhatIsNotExactlyRightIsRefused) {
  ASSERT_TRUE(save_costs(file(), unusual()).ok());
  const std::string good = read();
  std::string other_machine = good;
  other_machine.insert(other_machine.find('\n') + 1, "another ");
  std::string out_of_bounds = good;
  out_of_bounds.replace(out_of_bounds.find(" 77\n"), 4, " 0\n");
  std::string no_number = good;
  no_number.replace(no_number.find(" 77\n"), 4, " 77x\n");
  std::string too_long = good;
  too_long.append(10'000, 'x');
  for (const std::string& text : {std::string(), std::string("\n\n\n"), other_machine, out_of_bounds, no_number,
                                  too_long, good + "\n", good.substr(0, good.size() - 4)}) {
    write(text);
    const auto read = load_costs(file());
    EXPECT_FALSE(read.ok()) << text;
    EXPECT_NE(read.status().message().find("'ciranda tune' writes them anew"), std::string::npos);
  }
  write(good);
  EXPECT_TRUE(load_costs(file()).ok());
}

// A pipe would keep its reader waiting.
TEST_F(CostsFileTest, OnlyARegularFileIsRead) {
  std::filesystem::create_directories(file().path);
  EXPECT_FALSE(load_costs(file()).ok());
}

}  // namespace
}  // namespace ciranda
