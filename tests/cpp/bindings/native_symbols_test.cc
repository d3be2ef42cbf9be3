// Functions of a framework found by name: the C library stands for one.
#include <gtest/gtest.h>

#include <ciranda/native/symbols.hpp>
#include <cstddef>

namespace ciranda::native {
namespace {

struct Symbols {
  std::size_t (*strlen)(const char*);
  int (*gone)();
  void (*gone_too)(void*);
};

TEST(NativeSymbols, AreFoundInALoadedLibrary) {
  Symbols symbols{};
  EXPECT_EQ(find_symbols(loaded_library("libc.so.6"), "C", "2", {wanted("strlen", symbols.strlen)}), "");
  ASSERT_NE(symbols.strlen, nullptr);
  EXPECT_EQ(symbols.strlen("four"), 4U);
}

TEST(NativeSymbols, WhatIsMissingIsNamedWithTheVersion) {
  Symbols symbols{};
  symbols.gone = [] { return 1; };
  EXPECT_EQ(find_symbols(loaded_library("libc.so.6"), "Fakeflow", "2.99.1",
                         {wanted("strlen", symbols.strlen), wanted("FF_NewTensor", symbols.gone),
                          wanted("FF_Done", symbols.gone_too)}),
            "framework Fakeflow version 2.99.1 has no symbol FF_NewTensor, FF_Done");
  EXPECT_NE(symbols.strlen, nullptr);
  EXPECT_EQ(symbols.gone, nullptr);
  EXPECT_EQ(symbols.gone_too, nullptr);
}

TEST(NativeSymbols, ALibraryThatIsNotThereIsNotLoaded) {
  EXPECT_EQ(loaded_library("libfakeflow.so.1"), nullptr);
  EXPECT_EQ(find_symbols(nullptr, "Fakeflow", "2.99.1", {}),
            "framework Fakeflow version 2.99.1 is not loaded in this process");
}

}  // namespace
}  // namespace ciranda::native
