// The table of functions, and what is compiled to call by one.
#define CIRANDA_USE_TABLE
#include <ciranda/table.h>
//
#include <gtest/gtest.h>

#include <ciranda/ciranda.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

CIRANDA_DEFINE_TABLE

namespace {

TEST(Table, HasEveryFunction) {
  const ciranda_table* table = ciranda_get_table();
  EXPECT_EQ(table->struct_size, sizeof(ciranda_table));
  EXPECT_EQ(table->abi_version, static_cast<unsigned>(CIRANDA_ABI_VERSION));
  const auto* bytes = reinterpret_cast<const std::byte*>(table);
  for (std::size_t at = offsetof(ciranda_table, version); at < sizeof(ciranda_table); at += sizeof(void*)) {
    EXPECT_NE(*reinterpret_cast<void* const*>(bytes + at), nullptr) << at;
  }
}

TEST(Table, TheFaceGoesByIt) {
  char message[512];
  ASSERT_EQ(ciranda_use_table(ciranda_get_table(), message, sizeof(message)), CIRANDA_OK) << message;
  EXPECT_STREQ(message, "");
  EXPECT_EQ(ciranda_table_in_use, ciranda_get_table());
  ciranda::Context world(ciranda::Context::Settings{{"CIRANDA_RANK", "0"}, {"CIRANDA_SIZE", "1"}});
  std::vector<float> values{1, 2};
  world.allreduce(std::span(values), {.postscale = 3});
  EXPECT_EQ(values, (std::vector<float>{3, 6}));
}

TEST(Table, RefusesThatOfAnOlderEngine) {
  char message[512];
  ciranda_table older = *ciranda_get_table();
  older.abi_version = 4;
  older.struct_size = offsetof(ciranda_table, current);
  ciranda_table_in_use = nullptr;
  EXPECT_EQ(ciranda_use_table(&older, message, sizeof(message)), CIRANDA_INVALID_ARGUMENT);
  EXPECT_EQ(ciranda_table_in_use, nullptr);
  const std::string told = message;
  EXPECT_NE(told.find("version " + std::to_string(CIRANDA_ABI_VERSION)), std::string::npos) << told;
  EXPECT_NE(told.find("version 4"), std::string::npos) << told;
  EXPECT_EQ(ciranda_use_table(nullptr, message, sizeof(message)), CIRANDA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(message).find("NULL"), std::string::npos) << message;
  EXPECT_EQ(ciranda_check_table(nullptr, nullptr, 0), CIRANDA_INVALID_ARGUMENT);
}

TEST(Table, AcceptsThatOfANewerEngine) {
  struct Newer {
    ciranda_table table = *ciranda_get_table();
    void (*added)() = nullptr;
  } newer;
  newer.table.struct_size = sizeof(Newer);
  newer.table.abi_version = CIRANDA_ABI_VERSION + 1;
  EXPECT_EQ(ciranda_check_table(&newer.table, nullptr, 0), CIRANDA_OK);
}

}  // namespace
