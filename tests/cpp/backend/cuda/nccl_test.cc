// NCCL is found at run time, once, or refused with what was found and what to do.
#include "backend/cuda/nccl.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "backend/cuda/fake_process.hpp"

namespace ciranda::cuda::testing {
namespace {

const std::string kInSearch = std::string(CIRANDA_FAKE_CUDA) + "/libnccl.so.2";
const std::string kIncomplete = std::string(CIRANDA_INCOMPLETE_NCCL) + "/libnccl.so.2";

bool is_nccl_loaded() { return dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD) != nullptr; }

// load() and find_nccl() refuse with the same message, which begins so and has `part`.
void expect_nccl_refused(const std::string& named, const std::string& beginning, const std::string& part, int version) {
  const FoundNccl found = find_nccl(named);
  EXPECT_EQ(found.version, version);
  const Status refused = Nccl::load(named).status();
  EXPECT_EQ(refused.kind(), ErrorKind::kInvalidArgument);
  EXPECT_EQ(refused.message(), found.usable.message());
  EXPECT_EQ(refused.message().find(beginning), 0U) << refused.message();
  EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message();
}

constexpr const char* kNeededNccl = "NCCL 2.26.2 or newer is needed: pip install nvidia-nccl-cu13";

TEST(Nccl, IsNotOpenedBeforeItIsAskedFor) {
  expect_passes({}, [] {
    EXPECT_FALSE(loaded_nccl().has_value());
    EXPECT_FALSE(is_nccl_loaded());
    const Result<const Nccl*> loaded = Nccl::load("");
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_TRUE(is_nccl_loaded());
    EXPECT_EQ(loaded.value()->version(), 22809);
    EXPECT_EQ(loaded.value()->text(), "NCCL 2.28.9 (" + kInSearch + ")");
    EXPECT_EQ(Nccl::load("").value(), loaded.value());
    EXPECT_EQ(loaded_nccl()->path, kInSearch);
  });
}

TEST(Nccl, IsTheOneThatTheProcessHasLoaded) {
  expect_passes({{"FAKE_NCCL_VERSION", "22602"}}, [] {
    ASSERT_NE(dlopen(kInSearch.c_str(), RTLD_NOW), nullptr);
    EXPECT_EQ(loaded_nccl()->version, 22602);
    EXPECT_TRUE(loaded_nccl()->usable.ok());
    EXPECT_EQ(find_nccl("").path, kInSearch);
    EXPECT_TRUE(Nccl::load(kInSearch).ok());
  });
  expect_passes({}, [] {
    ASSERT_NE(dlopen(kInSearch.c_str(), RTLD_NOW), nullptr);
    expect_nccl_refused(kIncomplete, "CIRANDA_NCCL names " + kIncomplete, "has loaded " + kInSearch, 0);
  });
}

TEST(Nccl, AnOldOneIsRefusedWithItsVersionAndTheOneNeeded) {
  expect_passes({{"FAKE_NCCL_VERSION", "22601"}},
                [] { expect_nccl_refused("", "NCCL 2.26.1 (" + kInSearch + ") is too old. ", kNeededNccl, 22601); });
}

TEST(Nccl, WhatIsMissingIsNamed) {
  expect_passes({}, [] {
    expect_nccl_refused(kIncomplete, "NCCL 2.28.9 (" + kIncomplete + ") has no ncclCommAbort. ", kNeededNccl, 22809);
  });
}

TEST(Nccl, ThatThereIsNoneIsSaid) {
  expect_passes({},
                [] { expect_nccl_refused("/nowhere/libnccl.so.2", "NCCL was not found: /nowhere/", kNeededNccl, 0); });
}

}  // namespace
}  // namespace ciranda::cuda::testing
