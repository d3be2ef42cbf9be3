#include "base/other_launchers.hpp"

#include <array>
#include <optional>
#include <string>

#include "base/parse_number.hpp"

namespace ciranda {
namespace {

using Means = LauncherVariable::Means;

constexpr std::string_view kForMpi =
    "write 'ciranda run -np N COMMAND' instead of 'mpirun -np N COMMAND', on several hosts with -H hostA:2,hostB:2";
constexpr std::string_view kForSlurm =
    "write 'ciranda run -np N COMMAND' instead of 'srun COMMAND', on several hosts with -H $(scontrol show hostnames | "
    "sed s/$/:SLOTS/ | paste -sd,)";
constexpr std::string_view kForTorch =
    "write 'ciranda run -np N COMMAND' or, for Python, 'torchrun --nproc-per-node N COMMAND', which sets RANK, "
    "MASTER_ADDR and MASTER_PORT too";
constexpr std::string_view kForPaddle =
    "write 'ciranda run -np N COMMAND' or, for Python, 'python -m paddle.distributed.launch', which sets "
    "PADDLE_TRAINER_ID and PADDLE_TRAINER_ENDPOINTS too";
constexpr std::string_view kForKubernetes =
    "write 'torchrun --nnodes COMPLETIONS --node-rank $JOB_COMPLETION_INDEX --master-addr ADDRESS COMMAND' (Python "
    "only), or 'ciranda run -H POD:1,POD:1 COMMAND' in one pod alone";
constexpr std::string_view kForOthers = "write 'ciranda run -np N COMMAND' instead";

// The variables with the most specific advice come first: srun also sets those of PMI and PMIx.
constexpr std::array kVariables{
    LauncherVariable{"SLURM_STEP_NUM_TASKS", Means::kSize, "srun", kForSlurm},
    LauncherVariable{"OMPI_COMM_WORLD_SIZE", Means::kSize, "Open MPI's mpirun", kForMpi},
    LauncherVariable{"MV2_COMM_WORLD_SIZE", Means::kSize, "MVAPICH's mpirun", kForMpi},
    LauncherVariable{"JSM_NAMESPACE_SIZE", Means::kSize, "jsrun", kForOthers},
    LauncherVariable{"FLUX_JOB_SIZE", Means::kSize, "flux run", kForOthers},
    LauncherVariable{"PMI_SIZE", Means::kSize, "an mpirun (MPICH, Intel MPI)", kForMpi},
    LauncherVariable{"PMIX_RANK", Means::kIndex, "a launcher of PMIx", kForMpi},
    LauncherVariable{"WORLD_SIZE", Means::kSize, "a launcher of torch.distributed", kForTorch},
    LauncherVariable{"PADDLE_TRAINERS_NUM", Means::kSize, "a launcher of Paddle's", kForPaddle},
    LauncherVariable{"JOB_COMPLETION_INDEX", Means::kIndex, "an indexed Job of Kubernetes", kForKubernetes},
};

bool is_set(const GetEnv& get_env, const std::string& variable) {
  const auto value = get_env(variable);
  return value && !value->empty();
}

std::optional<std::int64_t> number_in(const std::optional<std::string>& value) {
  return value ? parse_number<std::int64_t>(*value) : std::nullopt;
}

bool says_several(const LauncherVariable& row, std::int64_t number) {
  return number > (row.means == Means::kSize ? 1 : 0);
}

bool is_size_told(const GetEnv& get_env) {
  for (const char* told : {"CIRANDA_SIZE", "HOROVOD_SIZE", "CIRANDA_ENGINE"}) {
    if (is_set(get_env, told)) return true;
  }
  return false;
}

std::string with_number(std::string text, const std::string& number) {
  constexpr std::string_view kPlace = " N ";
  for (std::size_t at = text.find(kPlace); at != std::string::npos; at = text.find(kPlace, at + 1)) {
    text.replace(at + 1, 1, number);
  }
  return text;
}

Status refuse(const LauncherVariable& row, const std::string& value, const std::string& but) {
  const std::string instead(row.instead);
  return Status::invalid_argument(
      std::string(row.name) + "=" + value + " says that this is one of several processes, started by " +
      std::string(row.launcher) + ", but " + but +
      ", and each would be a world of one: " + (row.means == Means::kSize ? with_number(instead, value) : instead) +
      ". Set CIRANDA_ENGINE=none if each is meant to be alone.");
}

}  // namespace

std::span<const LauncherVariable> launcher_variables() { return kVariables; }

Status refuse_one_by_accident(const GetEnv& get_env) {
  // True in a job of one process in which another launcher has started several: `ciranda run` has removed the variables
  // of launchers around the job itself.
  const bool is_around =
      is_set(get_env, "CIRANDA_JOB") && number_in(get_env("CIRANDA_SIZE")) == 1 && !is_set(get_env, "CIRANDA_ENGINE");
  if (is_size_told(get_env) && !is_around) return {};
  for (const LauncherVariable& row : kVariables) {
    if (is_around && row.means != Means::kSize) continue;
    const auto value = get_env(std::string(row.name));
    const auto number = number_in(value);
    if (!number || !says_several(row, *number)) continue;
    return refuse(row, *value,
                  is_around ? "CIRANDA_SIZE=1, which is that of the job around them" : "nothing says how they meet");
  }
  return {};
}

std::optional<std::string> doubt_that_one_is_meant(const GetEnv& get_env) {
  if (is_size_told(get_env)) return std::nullopt;
  const LauncherVariable* first = nullptr;
  for (const LauncherVariable& row : kVariables) {
    const auto number = number_in(get_env(std::string(row.name)));
    if (!number) continue;
    if (row.means == Means::kSize) return std::nullopt;
    if (first == nullptr && *number == 0) first = &row;
  }
  if (first == nullptr) return std::nullopt;
  return std::string(first->name) + "=0 says that this is the first process of those that " +
         std::string(first->launcher) + " has started, but not whether there are others: this one is a world of one. " +
         "If there are, " + std::string(first->instead) + "; if not, set CIRANDA_ENGINE=none, which ends this warning.";
}

}  // namespace ciranda
