// Joining, leaving, and the tables of names.
#include <ciranda/ciranda.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "capi/world_of_one.hpp"

namespace ciranda::capi {
namespace {

ciranda_status init_with(const std::vector<ciranda_setting>& settings, std::string& message) {
  ciranda_options options = CIRANDA_OPTIONS_INIT;
  options.settings = settings.data();
  options.settings_count = settings.size();
  ciranda_context* world = reinterpret_cast<ciranda_context*>(&options);
  char text[512];
  const ciranda_status status = ciranda_init(&options, &world, text, sizeof(text));
  EXPECT_EQ(world, nullptr);
  message = text;
  return status;
}

TEST_F(WorldOfOne, KnowsItsPlace) {
  EXPECT_EQ(ciranda_rank(world_), 0);
  EXPECT_EQ(ciranda_size(world_), 1);
  EXPECT_EQ(ciranda_local_rank(world_), 0);
  EXPECT_EQ(ciranda_local_size(world_), 1);
  EXPECT_EQ(ciranda_cross_rank(world_), 0);
  EXPECT_EQ(ciranda_cross_size(world_), 1);
  EXPECT_STREQ(ciranda_host_of(world_, 0), "here");
  EXPECT_EQ(ciranda_host_of(world_, 1), nullptr);
  EXPECT_EQ(ciranda_host_of(world_, -1), nullptr);
}

TEST(Context, JoinsAgainAfterLeaving) {
  const ciranda_options options = alone();
  for (int i = 0; i < 20; ++i) {
    ciranda_context* world = nullptr;
    ASSERT_EQ(ciranda_init(&options, &world, nullptr, 0), CIRANDA_OK);
    ciranda_shutdown(world);
  }
}

TEST(Context, RefusesAWrongSetting) {
  std::string message;
  EXPECT_EQ(init_with({{"CIRANDA_SIZE", "many"}}, message), CIRANDA_INVALID_ARGUMENT);
  EXPECT_NE(message.find("CIRANDA_SIZE"), std::string::npos) << message;
  EXPECT_NE(message.find("many"), std::string::npos) << message;
  EXPECT_EQ(init_with({{"CIRANDA_SIZES", "1"}}, message), CIRANDA_INVALID_ARGUMENT);
  EXPECT_NE(message.find("CIRANDA_SIZES"), std::string::npos) << message;
}

TEST(Context, IsNotAloneByAccident) {
  ASSERT_EQ(setenv("OMPI_COMM_WORLD_SIZE", "4", 1), 0);  // NOLINT(concurrency-mt-unsafe): no other thread
  std::string message;
  EXPECT_EQ(init_with({}, message), CIRANDA_INVALID_ARGUMENT);
  EXPECT_NE(message.find("OMPI_COMM_WORLD_SIZE=4"), std::string::npos) << message;
  EXPECT_NE(message.find("ciranda run -np 4"), std::string::npos) << message;
  const ciranda_setting alone = {"CIRANDA_ENGINE", "none"};
  ciranda_options options = CIRANDA_OPTIONS_INIT;
  options.settings = &alone;
  options.settings_count = 1;
  ciranda_context* world = nullptr;
  EXPECT_EQ(ciranda_init(&options, &world, nullptr, 0), CIRANDA_OK);
  EXPECT_EQ(ciranda_size(world), 1);
  ciranda_shutdown(world);
  ASSERT_EQ(unsetenv("OMPI_COMM_WORLD_SIZE"), 0);  // NOLINT(concurrency-mt-unsafe)
}

TEST(Context, CutsALongMessage) {
  const ciranda_setting wrong = {"CIRANDA_SIZE", "many"};
  ciranda_options options = CIRANDA_OPTIONS_INIT;
  options.settings = &wrong;
  options.settings_count = 1;
  ciranda_context* world = nullptr;
  char text[8] = {'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x'};
  EXPECT_EQ(ciranda_init(&options, &world, text, 5), CIRANDA_INVALID_ARGUMENT);
  EXPECT_EQ(std::strlen(text), 4u);
  EXPECT_EQ(text[5], 'x');
}

TEST(Context, NullIsSaidNotCrashedOn) {
  char text[64];
  EXPECT_EQ(ciranda_init(nullptr, nullptr, text, sizeof(text)), CIRANDA_INVALID_ARGUMENT);
  EXPECT_STRNE(text, "");
  ciranda_shutdown(nullptr);
  EXPECT_EQ(ciranda_rank(nullptr), -1);
  EXPECT_EQ(ciranda_size(nullptr), -1);
  EXPECT_EQ(ciranda_host_of(nullptr, 0), nullptr);
}

TEST(Library, NamesThings) {
  EXPECT_EQ(ciranda_abi_version(), static_cast<unsigned>(CIRANDA_ABI_VERSION));
  EXPECT_NE(std::string(ciranda_version()).find('.'), std::string::npos);
  EXPECT_STREQ(ciranda_status_name(CIRANDA_RANKS_LOST), "RanksLost");
  EXPECT_STREQ(ciranda_status_name(99), "unknown");
  EXPECT_STREQ(ciranda_dtype_name(CIRANDA_BFLOAT16), "bfloat16");
  EXPECT_EQ(ciranda_dtype_size(CIRANDA_FLOAT64), 8u);
  EXPECT_STREQ(ciranda_dtype_name(CIRANDA_COMPLEX128), "complex128");
  EXPECT_EQ(ciranda_dtype_size(CIRANDA_COMPLEX128), 16u);
  EXPECT_EQ(ciranda_dtype_name(15), nullptr);
  EXPECT_EQ(ciranda_dtype_size(-1), 0u);
  EXPECT_STREQ(ciranda_reduce_op_name(CIRANDA_BITWISE_XOR), "bitwise_xor");
  EXPECT_EQ(ciranda_reduce_op_name(12), nullptr);
  EXPECT_EQ(ciranda_reduce_op_accepts(CIRANDA_LOGICAL_AND, CIRANDA_BOOL), 1);
  EXPECT_EQ(ciranda_reduce_op_accepts(CIRANDA_LOGICAL_AND, CIRANDA_INT8), 0);
  EXPECT_EQ(ciranda_reduce_op_accepts(CIRANDA_MIN, CIRANDA_COMPLEX64), 0);
  EXPECT_EQ(ciranda_reduce_op_accepts(12, CIRANDA_INT8), 0);
  EXPECT_EQ(ciranda_reduce_op_accepts(CIRANDA_SUM, -1), 0);
}

}  // namespace
}  // namespace ciranda::capi
