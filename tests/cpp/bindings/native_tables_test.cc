// Tables of a framework's own numbers.
#include <gtest/gtest.h>

#include <ciranda/native/tables.hpp>
#include <optional>

namespace ciranda::native {
namespace {

enum class Kind { kHalf = 19, kSingle = 1, kDouble = 2, kTruth = 10, kByte = 4 };

constexpr DtypeTable<Kind> kDtypes({{CIRANDA_BOOL, Kind::kTruth},
                                    {CIRANDA_UINT8, Kind::kByte},
                                    {CIRANDA_UINT16, std::nullopt},
                                    {CIRANDA_UINT32, std::nullopt},
                                    {CIRANDA_UINT64, std::nullopt},
                                    {CIRANDA_INT8, std::nullopt},
                                    {CIRANDA_INT16, std::nullopt},
                                    {CIRANDA_INT32, std::nullopt},
                                    {CIRANDA_INT64, std::nullopt},
                                    {CIRANDA_FLOAT16, Kind::kHalf},
                                    {CIRANDA_BFLOAT16, std::nullopt},
                                    {CIRANDA_FLOAT32, Kind::kSingle},
                                    {CIRANDA_FLOAT64, Kind::kDouble},
                                    {CIRANDA_COMPLEX64, std::nullopt},
                                    {CIRANDA_COMPLEX128, std::nullopt}});
static_assert(kDtypes.theirs(CIRANDA_FLOAT16) == Kind::kHalf);
static_assert(kDtypes.ours(Kind::kSingle) == CIRANDA_FLOAT32);
static_assert(!kDtypes.theirs(CIRANDA_BFLOAT16).has_value());

// The last element type: the next raises this number, and every framework's table has to say what it is.
TEST(NativeTables, HaveARowForEveryElementType) {
  for (ciranda_dtype dtype = CIRANDA_BOOL; dtype <= CIRANDA_COMPLEX128; ++dtype) {
    EXPECT_NE(ciranda_dtype_name(dtype), nullptr);
  }
  EXPECT_EQ(ciranda_dtype_name(CIRANDA_COMPLEX128 + 1), nullptr);
  EXPECT_STREQ(ciranda_status_name(CIRANDA_INTERNAL), "Internal");
  EXPECT_STREQ(ciranda_status_name(CIRANDA_INTERNAL + 1), "unknown");
}

TEST(NativeTables, NumbersOutOfRangeHaveNone) {
  EXPECT_FALSE(kDtypes.theirs(-1).has_value());
  EXPECT_FALSE(kDtypes.theirs(CIRANDA_COMPLEX128 + 1).has_value());
  EXPECT_FALSE(kDtypes.ours(static_cast<Kind>(77)).has_value());
}

}  // namespace
}  // namespace ciranda::native
