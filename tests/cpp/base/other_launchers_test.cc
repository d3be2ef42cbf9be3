// A world of one that another launcher's variables contradict is refused, with the variable, its value and the way out.
#include "base/other_launchers.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

namespace ciranda {
namespace {

using Environment = std::map<std::string, std::string>;

GetEnv in(const Environment& environment) {
  return [&environment](const std::string& variable) -> std::optional<std::string> {
    const auto found = environment.find(variable);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
}

std::string refusal(const Environment& environment) {
  const Status status = refuse_one_by_accident(in(environment));
  if (status.ok()) return "";
  EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument);
  return status.message();
}

class EveryVariable : public ::testing::TestWithParam<LauncherVariable> {
 protected:
  std::string name() const { return std::string(GetParam().name); }
  bool is_size() const { return GetParam().means == LauncherVariable::Means::kSize; }
};

TEST_P(EveryVariable, ThatSaysSeveralIsRefusedWithItsValueAndTheWayOut) {
  const std::string said = refusal({{name(), "3"}});
  EXPECT_EQ(said.find(name() + "=3 says that this is one of several processes, started by "), 0U) << said;
  EXPECT_NE(said.find(GetParam().launcher), std::string::npos) << said;
  EXPECT_NE(said.find(is_size() ? "ciranda run -np 3 COMMAND" : "COMMAND"), std::string::npos) << said;
  EXPECT_EQ(is_size() ? said.find(" N ") : std::string::npos, std::string::npos) << said;
  EXPECT_NE(said.find("CIRANDA_ENGINE=none"), std::string::npos) << said;
}

TEST_P(EveryVariable, ThatSaysOneOrNothingIsAccepted) {
  for (const char* value : {"", "0", "many", "-1", "3x"}) EXPECT_EQ(refusal({{name(), value}}), "") << value;
  EXPECT_EQ(refusal({{name(), "1"}}).empty(), is_size());
}

TEST_P(EveryVariable, IsOverruledByWhoSaysHowLargeTheWorldIs) {
  EXPECT_EQ(refusal({{name(), "3"}, {"CIRANDA_SIZE", "1"}}), "");
  EXPECT_EQ(refusal({{name(), "3"}, {"HOROVOD_SIZE", "2"}}), "");
  EXPECT_EQ(refusal({{name(), "3"}, {"CIRANDA_ENGINE", "none"}}), "");
  EXPECT_NE(refusal({{name(), "3"}, {"CIRANDA_SIZE", ""}, {"CIRANDA_RANK", "0"}}), "");
}

// As in `ciranda run -np 1 torchrun --nproc-per-node 2 train.py`.
TEST_P(EveryVariable, ThatSaysSeveralIsRefusedWithinAJobOfOne) {
  const Environment job{{"CIRANDA_JOB", "1f"}, {"CIRANDA_SIZE", "1"}, {name(), "3"}};
  EXPECT_EQ(refusal(job).find("but CIRANDA_SIZE=1, which is that of the job around them") != std::string::npos,
            is_size());
  Environment meant = job;
  meant["CIRANDA_ENGINE"] = "none";
  EXPECT_EQ(refusal(meant), "");
  Environment several = job;
  several["CIRANDA_SIZE"] = "3";
  EXPECT_EQ(refusal(several), "");
}

TEST_P(EveryVariable, ThatCountsFromZeroRaisesADoubtInTheFirst) {
  const auto doubt = [](const Environment& environment) {
    return doubt_that_one_is_meant(in(environment)).value_or("");
  };
  const std::string said = doubt({{name(), "0"}});
  EXPECT_EQ(said.find(name() + "=0 says that this is the first process of those that ") == 0, !is_size()) << said;
  EXPECT_EQ(said.empty(), is_size());
  for (const char* value : {"", "1", "x"}) EXPECT_EQ(doubt({{name(), value}}), "") << value;
  EXPECT_EQ(doubt({{name(), "0"}, {"CIRANDA_ENGINE", "none"}}), "");
  EXPECT_EQ(doubt({{name(), "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), "");  // it is known to be alone
}

INSTANTIATE_TEST_SUITE_P(OtherLaunchers, EveryVariable, ::testing::ValuesIn(launcher_variables()),
                         [](const auto& row) { return std::string(row.param.name); });

// srun sets some of PMI's too, and an sbatch script says how many tasks there may be where none runs yet.
TEST(OtherLaunchers, TheMostTellingIsNamedAndAnAllocationIsNoIdentity) {
  EXPECT_EQ(refusal({{"PMI_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}}).find("SLURM_STEP_NUM_TASKS=2"), 0U);
  EXPECT_EQ(refusal({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_NUM_NODES", "4"}, {"SLURM_PROCID", "0"}}), "");
  EXPECT_EQ(refusal({}), "");
}

}  // namespace
}  // namespace ciranda
