#include "base/other_launchers.hpp"

#include <algorithm>
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
    "write 'ciranda run -np N COMMAND' in the allocation instead of 'srun COMMAND': it starts the ranks on all of its "
    "nodes";
constexpr std::string_view kForTorch =
    "write 'ciranda run -np N COMMAND' or, for Python, 'torchrun --nproc-per-node N COMMAND', which sets RANK, "
    "MASTER_ADDR and MASTER_PORT too";
constexpr std::string_view kForPaddle =
    "write 'ciranda run -np N COMMAND' or, for Python, 'python -m paddle.distributed.launch', which sets "
    "PADDLE_TRAINER_ID and PADDLE_TRAINER_ENDPOINTS too";
constexpr std::string_view kForKubernetes =
    "start what 'ciranda kubernetes manifest' prints, or, for Python, write 'torchrun --nnodes COMPLETIONS --node-rank "
    "$JOB_COMPLETION_INDEX --master-addr ADDRESS COMMAND'";
constexpr std::string_view kForOthers = "write 'ciranda run -np N COMMAND' instead";
constexpr std::string_view kForHosts =
    "start it once with 'ciranda run -H HOST:SLOTS,HOST:SLOTS COMMAND', which reaches the hosts by ssh, or on each of "
    "them with 'torchrun --nnodes N --node-rank INDEX --master-addr ADDRESS COMMAND' (Python only)";

// The variables with the most specific advice come first: a launcher also sets those of PMI and PMIx, and within srun
// another may have started the processes. Those that describe hosts are last: what starts processes on them says more.
constexpr std::array kVariables{
    LauncherVariable{"OMPI_COMM_WORLD_SIZE", Means::kSize, "Open MPI's mpirun", kForMpi},
    LauncherVariable{"MV2_COMM_WORLD_SIZE", Means::kSize, "MVAPICH's mpirun", kForMpi},
    LauncherVariable{"JSM_NAMESPACE_SIZE", Means::kSize, "jsrun", kForOthers},
    LauncherVariable{"FLUX_JOB_SIZE", Means::kSize, "flux run", kForOthers},
    LauncherVariable{"PMI_ID", Means::kIndex, "an mpirun with -pmi-port (MPICH)", kForMpi},
    LauncherVariable{"SLURM_STEP_NUM_TASKS", Means::kSize, "srun", kForSlurm, "SLURM_NTASKS"},
    LauncherVariable{"PMI_SIZE", Means::kSize, "an mpirun (MPICH, Intel MPI)", kForMpi},
    LauncherVariable{"PMIX_RANK", Means::kIndex, "a launcher of PMIx", kForMpi},
    LauncherVariable{"PALS_RANKID", Means::kIndex, "Cray's mpiexec (PALS)", kForMpi},
    LauncherVariable{"ALPS_APP_PE", Means::kIndex, "Cray's aprun (ALPS)", kForMpi},
    LauncherVariable{"LSF_PM_TASKID", Means::kIndexFromOne, "LSF's blaunch", kForMpi},
    LauncherVariable{"WORLD_SIZE", Means::kSize, "a launcher of torch.distributed", kForTorch},
    LauncherVariable{"PADDLE_TRAINERS_NUM", Means::kSize, "a launcher of Paddle's", kForPaddle},
    LauncherVariable{"DMLC_NUM_WORKER", Means::kSize, "a launcher of MXNet's parameter server", kForOthers},
    LauncherVariable{"TF_CONFIG", Means::kWorkersOfTensorFlow, "a launcher of TensorFlow's", kForHosts},
    LauncherVariable{"PET_NNODES", Means::kHosts, "Kubeflow's Trainer", kForHosts},
    LauncherVariable{"SM_HOSTS", Means::kListOfHosts, "SageMaker", kForHosts},
    LauncherVariable{"VC_WORKER_NUM", Means::kHosts, "Volcano", kForHosts},
    LauncherVariable{"SKYPILOT_NUM_NODES", Means::kHosts, "SkyPilot", kForHosts},
    LauncherVariable{"JOB_COMPLETION_INDEX", Means::kIndex, "an indexed Job of Kubernetes", kForKubernetes},
};

constexpr std::size_t kMostShown = 60;  // of a value

bool is_set(const GetEnv& get_env, const std::string& variable) {
  const auto value = get_env(variable);
  return value && !value->empty();
}

std::optional<std::int64_t> number_in(const std::optional<std::string>& value) {
  return value ? parse_number<std::int64_t>(*value) : std::nullopt;
}

// The entries of the first JSON list of strings in `text` from `at` on. No string in it may hold a bracket or an
// escape, which no host name does.
std::int64_t entries_of_list(std::string_view text, std::size_t at) {
  const std::size_t begin = text.find('[', at);
  const std::size_t end = begin == std::string_view::npos ? begin : text.find(']', begin);
  if (end == std::string_view::npos) return 0;
  const auto list = text.substr(begin, end - begin);
  return std::count(list.begin(), list.end(), '"') / 2;
}

// The entries of the list that is the value of `key`, if it is one.
std::int64_t entries_of_value(std::string_view text, std::string_view key) {
  constexpr std::string_view kSpace = " \t\r\n";
  for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    const std::size_t colon = text.find_first_not_of(kSpace, at + key.size());
    if (colon == std::string_view::npos || text[colon] != ':') continue;  // it is itself a value
    const std::size_t value = text.find_first_not_of(kSpace, colon + 1);
    if (value != std::string_view::npos && text[value] == '[') return entries_of_list(text, value);
  }
  return 0;
}

// Of TensorFlow's {"cluster": {"worker": ["host:port", ...], ...}, "task": {"type": "worker", ...}}: those that train.
std::int64_t workers_of_tensorflow(std::string_view text) {
  return entries_of_value(text, "\"worker\"") + entries_of_value(text, "\"chief\"") +
         entries_of_value(text, "\"master\"");
}

// The number of processes, or of hosts with one each; for an index, the index from 0 on. Nothing if it cannot be read.
std::optional<std::int64_t> number_in(const LauncherVariable& row, const std::optional<std::string>& value) {
  if (!value) return std::nullopt;
  switch (row.means) {
    case Means::kSize:
    case Means::kIndex: return number_in(value);
    case Means::kIndexFromOne: {
      const auto number = number_in(value);
      return number ? std::optional(*number - 1) : std::nullopt;
    }
    case Means::kHosts:  // a number, or a range: LEAST:MOST
      return number_in(value->substr(value->find(':') + 1));
    case Means::kListOfHosts: return entries_of_list(*value, 0);
    case Means::kWorkersOfTensorFlow: return workers_of_tensorflow(*value);
  }
  return std::nullopt;
}

bool says_several(const LauncherVariable& row, std::int64_t number) { return number > (is_index(row) ? 0 : 1); }

// As in the batch script of a job that was submitted within a step of another: sbatch passes on the step's variables.
bool is_left_over(const LauncherVariable& row, std::int64_t number, const GetEnv& get_env) {
  if (row.agrees_with.empty()) return false;
  const auto other = number_in(get_env(std::string(row.agrees_with)));
  return other && *other != number;
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

Status refuse(const LauncherVariable& row, const std::string& value, std::int64_t number, const std::string& but) {
  const std::string instead(row.instead);
  const std::string shown = value.size() > kMostShown ? value.substr(0, kMostShown) + "..." : value;
  return Status::invalid_argument(std::string(row.name) + "=" + shown +
                                  " says that this is one of several processes, started by " +
                                  std::string(row.launcher) + ", but " + but + ", and each would be a world of one: " +
                                  (is_index(row) ? instead : with_number(instead, std::to_string(number))) +
                                  ". Set CIRANDA_ENGINE=none if each is meant to be alone.");
}

}  // namespace

std::span<const LauncherVariable> launcher_variables() { return kVariables; }

bool is_index(const LauncherVariable& row) { return row.means == Means::kIndex || row.means == Means::kIndexFromOne; }

bool describes_hosts(const LauncherVariable& row) {
  return row.means == Means::kHosts || row.means == Means::kListOfHosts || row.means == Means::kWorkersOfTensorFlow;
}

Status refuse_one_by_accident(const GetEnv& get_env) {
  // True in a job of one process in which another launcher has started several: `ciranda run` has removed the variables
  // of launchers around the job itself.
  const bool is_around =
      is_set(get_env, "CIRANDA_JOB") && number_in(get_env("CIRANDA_SIZE")) == 1 && !is_set(get_env, "CIRANDA_ENGINE");
  if (is_size_told(get_env) && !is_around) return {};
  for (const LauncherVariable& row : kVariables) {
    if (is_around && (is_index(row) || describes_hosts(row))) continue;
    const auto value = get_env(std::string(row.name));
    const auto number = number_in(row, value);
    if (!number || !says_several(row, *number) || is_left_over(row, *number, get_env)) continue;
    return refuse(row, *value, *number,
                  is_around ? "CIRANDA_SIZE=1, which is that of the job around them" : "nothing says how they meet");
  }
  return {};
}

std::optional<std::string> doubt_that_one_is_meant(const GetEnv& get_env) {
  if (is_size_told(get_env)) return std::nullopt;
  const LauncherVariable* first = nullptr;
  for (const LauncherVariable& row : kVariables) {
    const auto number = number_in(row, get_env(std::string(row.name)));
    if (!number || (describes_hosts(row) && *number != 1)) continue;
    if (!is_index(row)) return std::nullopt;
    if (first == nullptr && *number == 0) first = &row;
  }
  if (first == nullptr) return std::nullopt;
  return std::string(first->name) + "=" + *get_env(std::string(first->name)) +
         " says that this is the first process of those that " + std::string(first->launcher) +
         " has started, but not whether there are others: this one is a world of one. " + "If there are, " +
         std::string(first->instead) + "; if not, set CIRANDA_ENGINE=none, which ends this warning.";
}

}  // namespace ciranda
