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
  bool is_size() const { return !is_index(GetParam()); }
  bool is_of_processes() const { return is_size() && !describes_hosts(GetParam()); }

  // The variable's value for so many processes, or for the process of this index from 0 on.
  std::string value(int number) const {
    const std::string text = std::to_string(number);
    switch (GetParam().means) {
      case LauncherVariable::Means::kSize:
      case LauncherVariable::Means::kIndex: return text;
      case LauncherVariable::Means::kIndexFromOne: return std::to_string(number + 1);
      case LauncherVariable::Means::kHosts: return "1:" + text;
      case LauncherVariable::Means::kListOfHosts: return "[" + list_of(number) + "]";
      case LauncherVariable::Means::kWorkersOfTensorFlow:
        return R"({"task": {"type": "worker", "index": 0}, "cluster": {"ps": ["p:1", "q:1"], "worker" : [)" +
               list_of(number) + "]}}";
    }
    return "";
  }

 private:
  static std::string list_of(int number) {
    std::string list;
    for (int entry = 0; entry < number; ++entry) list += (entry > 0 ? ", " : "") + std::string(R"("host:1")");
    return list;
  }
};

TEST_P(EveryVariable, ThatSaysSeveralIsRefusedWithItsValueAndTheWayOut) {
  const std::string said = refusal({{name(), value(3)}});
  EXPECT_EQ(said.find(name() + "=" + value(3).substr(0, 60)), 0U) << said;
  EXPECT_NE(said.find(" says that this is one of several processes, started by "), std::string::npos) << said;
  EXPECT_NE(said.find(GetParam().launcher), std::string::npos) << said;
  EXPECT_NE(said.find(is_of_processes() ? "ciranda run -np 3 COMMAND" : "COMMAND"), std::string::npos) << said;
  if (describes_hosts(GetParam())) {
    EXPECT_NE(said.find("torchrun --nnodes 3 "), std::string::npos) << said;
  }
  EXPECT_EQ(is_size() ? said.find(" N ") : std::string::npos, std::string::npos) << said;
  EXPECT_NE(said.find("CIRANDA_ENGINE=none"), std::string::npos) << said;
}

TEST_P(EveryVariable, ThatSaysOneOrNothingIsAccepted) {
  for (const char* text : {"", "0", "many", "-1", "3x", "[]", "{}", "[", R"({"worker": )", R"(["a"])"}) {
    EXPECT_EQ(refusal({{name(), text}}), "") << text;
  }
  EXPECT_EQ(refusal({{name(), value(1)}}).empty(), is_size());
  EXPECT_EQ(refusal({{name(), value(0)}}), "");
}

TEST_P(EveryVariable, IsOverruledByWhoSaysHowLargeTheWorldIs) {
  EXPECT_EQ(refusal({{name(), value(3)}, {"CIRANDA_SIZE", "1"}}), "");
  EXPECT_EQ(refusal({{name(), value(3)}, {"HOROVOD_SIZE", "2"}}), "");
  EXPECT_EQ(refusal({{name(), value(3)}, {"CIRANDA_ENGINE", "none"}}), "");
  EXPECT_NE(refusal({{name(), value(3)}, {"CIRANDA_SIZE", ""}, {"CIRANDA_RANK", "0"}}), "");
}

// As in `ciranda run -np 1 torchrun --nproc-per-node 2 train.py`. What describes hosts is passed on to ranks.
TEST_P(EveryVariable, ThatSaysSeveralIsRefusedWithinAJobOfOne) {
  const Environment job{{"CIRANDA_JOB", "1f"}, {"CIRANDA_SIZE", "1"}, {name(), value(3)}};
  EXPECT_EQ(refusal(job).find("but CIRANDA_SIZE=1, which is that of the job around them") != std::string::npos,
            is_of_processes());
  Environment meant = job;
  meant["CIRANDA_ENGINE"] = "none";
  EXPECT_EQ(refusal(meant), "");
  Environment several = job;
  several["CIRANDA_SIZE"] = "3";
  EXPECT_EQ(refusal(several), "");
}

TEST_P(EveryVariable, ThatNumbersTheFirstRaisesADoubt) {
  const auto doubt = [](const Environment& environment) {
    return doubt_that_one_is_meant(in(environment)).value_or("");
  };
  const std::string said = doubt({{name(), value(0)}});
  EXPECT_EQ(said.find(name() + "=" + value(0) + " says that this is the first process of those that ") == 0, !is_size())
      << said;
  EXPECT_EQ(said.empty(), is_size());
  for (const std::string& text : {std::string(), value(1), std::string("x")}) {
    EXPECT_EQ(doubt({{name(), text}}), "") << text;
  }
  EXPECT_EQ(doubt({{name(), value(0)}, {"CIRANDA_ENGINE", "none"}}), "");
  EXPECT_EQ(doubt({{name(), value(0)}, {"OMPI_COMM_WORLD_SIZE", "1"}}), "");  // it is known to be alone
}

INSTANTIATE_TEST_SUITE_P(OtherLaunchers, EveryVariable, ::testing::ValuesIn(launcher_variables()),
                         [](const auto& row) { return std::string(row.param.name); });

// srun sets some of PMI's too, and an sbatch script says how many tasks there may be where none runs yet.
TEST(OtherLaunchers, TheMostTellingIsNamedAndAnAllocationIsNoIdentity) {
  EXPECT_EQ(refusal({{"PMI_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}}).find("SLURM_STEP_NUM_TASKS=2"), 0U);
  EXPECT_EQ(refusal({{"PET_NNODES", "2"}, {"JOB_COMPLETION_INDEX", "1"}}).find("PET_NNODES=2"), 0U);
  EXPECT_EQ(refusal({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_NUM_NODES", "4"}, {"SLURM_PROCID", "0"}}), "");
  EXPECT_EQ(refusal({{"LSB_DJOB_NUMPROC", "8"}, {"PBS_NUM_NODES", "4"}}), "");
  EXPECT_EQ(refusal({}), "");
}

// sbatch within a step of two tasks: the batch script of the new job has the old step's variables.
TEST(OtherLaunchers, TheVariablesOfAnotherJobsStepAreNotThisOnes) {
  EXPECT_EQ(refusal({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "1"}}), "");
  EXPECT_NE(refusal({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "2"}}), "");
}

}  // namespace
}  // namespace ciranda
