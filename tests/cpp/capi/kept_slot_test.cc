// A slot that a process keeps is taken for programs that it starts, and for nobody else.
#include "capi/kept_slot.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace ciranda::capi {
namespace {

using Environment = std::map<std::string, std::string>;

std::string slot_in(const Environment& environment) {
  return slot_of([&](const std::string& variable) {
    const auto found = environment.find(variable);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  });
}

Environment launched(const std::string& changed = "", const std::string& value = "") {
  Environment environment{
      {"CIRANDA_STORE", "127.0.0.1:1"}, {"CIRANDA_JOB", "a"}, {"CIRANDA_RANK", "0"}, {"CIRANDA_SIZE", "2"}};
  if (!changed.empty()) environment[changed] = value;
  return environment;
}

TEST(PlaceOf, DiffersByRankJobAndSize) {
  const std::set<std::string> slots{slot_in(launched()), slot_in(launched("CIRANDA_JOB", "b")),
                                    slot_in(launched("CIRANDA_RANK", "1")), slot_in(launched("CIRANDA_SIZE", "1")),
                                    slot_in(launched("CIRANDA_STORE", "127.0.0.1:2"))};
  EXPECT_EQ(slots.size(), 5U);
  EXPECT_EQ(slot_in(launched("PATH", "/bin")), slot_in(launched()));
}

TEST(PlaceOf, IsNoneWithoutARendezvous) {
  EXPECT_EQ(slot_in({}), "");
  EXPECT_EQ(slot_in({{"CIRANDA_SIZE", "1"}, {"CIRANDA_RANK", "0"}}), "");
}

bool is_so_in_a_child(const std::function<bool()>& what) {
  const pid_t child = fork();
  if (child == 0) _exit(what() ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

TEST(KeptSlot, IsTakenForChildrenUntilItIsReleased) {
  const std::string me = std::to_string(getpid());
  KeptSlot kept = KeptSlot(3, "here");
  EXPECT_EQ(why_taken("here"), "");  // who keeps it may join again
  EXPECT_TRUE(is_so_in_a_child([&] {
    const std::string told = "this program was started by rank 3 (process " + me + "), which is in the world itself";
    return why_taken("here").starts_with(told) && why_taken("there").empty() && why_taken("").empty();
  }));
  kept.release();
  EXPECT_EQ(getenv("CIRANDA_TAKEN_BY"), nullptr);
}

// As where a program's parent has left its environment to it, and then the world.
TEST(KeptSlot, IsFreeOnceTheFileIsGoneOrAnother) {
  KeptSlot kept(0, "here");
  const std::string path = kept.path();
  kept.release();
  for (const std::string& said : {path, path + "0", std::string("/proc/1/nothing"), std::string("/etc/passwd")}) {
    setenv("CIRANDA_TAKEN_BY", said.c_str(), 1);
    EXPECT_TRUE(is_so_in_a_child([] { return why_taken("here").empty(); })) << said;
  }
  unsetenv("CIRANDA_TAKEN_BY");
}

// Whoever has set the variable since means something by it.
TEST(KeptSlot, TakesBackOnlyWhatItHasSaid) {
  KeptSlot kept(0, "here");
  setenv("CIRANDA_TAKEN_BY", "another", 1);
  kept = KeptSlot();
  EXPECT_STREQ(getenv("CIRANDA_TAKEN_BY"), "another");
  unsetenv("CIRANDA_TAKEN_BY");
}

}  // namespace
}  // namespace ciranda::capi
