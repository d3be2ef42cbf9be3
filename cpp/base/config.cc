#include "base/config.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/log_level.hpp"
#include "base/log_line.hpp"
#include "base/parse_number.hpp"
#include "base/port_range.hpp"
#include "base/staging_choice.hpp"

namespace ciranda {
namespace {

constexpr double kMaxRanks = 1 << 20;
constexpr double kMaxSeconds = 1e9;
constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;

// Table rows by type of setting. `field` is the member of Config that gets the value.
constexpr Setting integer(std::string_view name, std::string_view horovod, std::int64_t Config::*field, double lowest,
                          double highest, std::string_view meaning) {
  return {name, horovod, SettingType::kInteger, lowest, highest, meaning, field};
}
constexpr Setting real(std::string_view name, std::string_view horovod, double Config::*field, double lowest,
                       double highest, std::string_view meaning) {
  return {name, horovod, SettingType::kReal, lowest, highest, meaning, nullptr, field};
}
constexpr Setting boolean(std::string_view name, std::string_view horovod, bool Config::*field,
                          std::string_view meaning) {
  return {name, horovod, SettingType::kBoolean, 0, 1, meaning, nullptr, nullptr, field};
}
constexpr Setting text(std::string_view name, std::string_view horovod, std::string Config::*field,
                       std::string_view meaning, SettingType type = SettingType::kText,
                       std::span<const std::string_view> words = {}) {
  return {name, horovod, type, 0, 0, meaning, nullptr, nullptr, nullptr, field, words};
}
constexpr Setting word(std::string_view name, std::string_view horovod, std::string Config::*field,
                       std::span<const std::string_view> words, std::string_view meaning) {
  return text(name, horovod, field, meaning, SettingType::kWord, words);
}
constexpr Setting ports(std::string_view name, std::string_view horovod, std::string Config::*field,
                        std::string_view meaning) {
  return text(name, horovod, field, meaning, SettingType::kPorts);
}

constexpr std::array<std::string_view, 1> kEngines{"none"};
constexpr std::array<std::string_view, 3> kSimdLevels{"baseline", "avx2", "avx512"};
constexpr std::array<std::string_view, 7> kAlgorithms{"one-shot", "two-shot", "by-hosts", "doubling",
                                                      "star",     "tree",     "chain"};
constexpr std::array<std::string_view, 1> kWireDtypes{"bf16"};
constexpr std::array<std::string_view, 4> kGpuWays{"auto", "staged", "peer", "nccl"};
constexpr std::array<std::string_view, 2> kGpuReductions{"nccl", "ciranda"};
constexpr std::array<std::string_view, 4> kWireLevels{"authenticate", "encrypt", "check", "none"};
constexpr std::array<std::string_view, 3> kBindings{"none", "numa", "core"};

constexpr std::array kSettings{
    integer("RANK", "HOROVOD_RANK", &Config::rank, 0, kMaxRanks,
            "Rank of this process in the world; set by the launcher."),
    integer("SIZE", "HOROVOD_SIZE", &Config::size, 1, kMaxRanks, "Number of ranks in the world; set by the launcher."),
    integer("LOCAL_RANK", "HOROVOD_LOCAL_RANK", &Config::local_rank, 0, kMaxRanks,
            "Rank of this process among those of its host; set by the launcher."),
    integer("LOCAL_SIZE", "HOROVOD_LOCAL_SIZE", &Config::local_size, 1, kMaxRanks,
            "Number of ranks on this host; set by the launcher."),
    integer("CROSS_RANK", "HOROVOD_CROSS_RANK", &Config::cross_rank, 0, kMaxRanks,
            "Index of this host among those that have a process of this local rank; set by the launcher."),
    integer("CROSS_SIZE", "HOROVOD_CROSS_SIZE", &Config::cross_size, 1, kMaxRanks,
            "Number of hosts that have a process of this local rank; set by the launcher."),
    text("HOST", "HOROVOD_HOSTNAME", &Config::host, "Name of this host in messages; set by the launcher."),
    text("HOST_ID", "", &Config::host_id,
         "Identity of this host: only ranks with the same one probe for shared memory. Empty: derived from the running "
         "kernel."),
    text("JOB", "", &Config::job, "Identifier of the job, not secret; set by the launcher."),
    text("STORE", "", &Config::store, "Address of the rendezvous store, addr:port; several separated by commas."),
    text("SECRET_FILE", "", &Config::secret_file,
         "File that only its owner may read, with the job's secret as 64 hexadecimal digits."),
    text("PAGE_FILE", "", &Config::page_file,
         "File in memory for this rank's counters, made by the launcher. Empty: memory of this process alone."),
    text(
        "RECORDS_FILE", "", &Config::records_file,
        "File for the records of this rank in a timeline of all ranks, made by the launcher. Empty: none are written."),
    integer("RECORDS_FROM_STEP", "", &Config::records_from_step, 0, 1LL << 40,
            "The number of steps of the training that end before the first of these records; set by the launcher."),
    integer("RECORDS_UNTIL_STEP", "", &Config::records_until_step, 0, 1LL << 40,
            "The number of steps that end before the last of these records, 0: all; set by the launcher."),
    word("ENGINE", "", &Config::engine, kEngines,
         "none: run as a world of one, although a launcher such as mpirun, srun or torchrun has started several "
         "processes."),
    real("START_TIMEOUT", "HOROVOD_START_TIMEOUT", &Config::start_timeout_seconds, 0.1, kMaxSeconds,
         "Seconds that init() waits for all ranks."),
    ports("PORT_RANGE", "", &Config::port_range, "Ports to listen on, low-high; empty for any."),
    text("INTERFACE", "HOROVOD_GLOO_IFACE", &Config::interface,
         "Network interface to use, by name or address. With several, separated by commas, the sockets of two ranks "
         "are spread over them. Empty: the one that reaches the store."),
    integer(
        "SOCKETS", "", &Config::sockets, 0, 16,
        "Data connections between two ranks without shared memory; 0: one for each interface. The same on all ranks."),
    word(
        "WIRE", "", &Config::wire, kWireLevels,
        "What protects bytes between ranks without shared memory. authenticate: an AES-256-GMAC of every record, under "
        "keys that only the ranks have; encrypt: AES-256-GCM, which also hides them; check: a CRC32C, against "
        "accidents alone; none: nothing but TCP's own checksum. The same on all ranks."),
    real("LINK_TIMEOUT", "", &Config::link_timeout_seconds, 1, 3600,
         "Seconds without an acknowledgement from a rank's host after which the rank is lost, for example behind a cut "
         "cable. The launcher and its agents follow it."),
    boolean("SHARED_MEMORY", "", &Config::shared_memory, "Use shared memory between ranks that can map it in common."),
    integer("SLOT_BYTES", "", &Config::slot_bytes, 4096, kGiB,
            "Size of each of a rank's two staging buffers (slots) in shared memory; a multiple of 4096. The same on "
            "all ranks."),
    word("ALGORITHM", "", &Config::algorithm, kAlgorithms,
         "Force an algorithm: one-shot, two-shot, by-hosts or doubling for reductions, small ones included, wherever "
         "possible; star, tree or chain for broadcasts. Empty: the cost model chooses. The same on all ranks."),
    integer("ONE_SHOT_BYTES", "", &Config::one_shot_bytes, -1, kGiB,
            "Largest reduction that every rank computes in full (one round); above it each rank reduces a slice (two "
            "rounds). -1: the cost model chooses. The same on all ranks."),
    word("WIRE_DTYPE", "", &Config::wire_dtype, kWireDtypes,
         "bf16: float32 reductions among ranks that do not all share memory are sent as bfloat16, rounded. Empty: sent "
         "as they are. The same on all ranks."),
    word(
        "GPU_WAY", "", &Config::gpu_way, kGpuWays,
        "How tensors on GPUs travel. peer: in the GPUs' memory, where all ranks of a call are on one host; what cannot "
        "go so, as Adasum and weighted averages, is staged, and a warning says why, once. staged: always in host "
        "memory. nccl: by NCCL, where each rank has a GPU of its own; else as peer, and a warning says why. auto: as "
        "peer, without the warning. The same on all ranks."),
    word(
        "GPU_REDUCE", "", &Config::gpu_reduce, kGpuReductions,
        "Who reduces tensors that go by NCCL. nccl: NCCL, where it can, in an order of its own. ciranda: kernels of "
        "Ciranda, in rank order, so results have the bits of the CPU's; NCCL only moves bytes. The same on all ranks."),
    text("NCCL", "", &Config::nccl,
         "File of NCCL's library, libnccl.so.2. Empty: the one that the process has loaded, else that of the package "
         "nvidia-nccl beside ciranda, else the system's."),
    boolean("NCCL_BETWEEN_HOSTS", "", &Config::nccl_between_hosts,
            "Let NCCL carry tensors between hosts even if CIRANDA_WIRE is authenticate or encrypt, although NCCL does "
            "neither."),
    integer("SEGMENT_BYTES", "", &Config::segment_bytes, 0, kGiB,
            "Pipeline segment of two-shot reductions and of forwarded broadcasts, at most a slot where memory is "
            "shared; a multiple of 4096; 0: the cost model chooses. The same on all ranks."),
    boolean(
        "AUTOTUNE", "HOROVOD_AUTOTUNE", &Config::autotune,
        "Online autotuning: at init(), if all ranks share memory and each has a core, measure the cost of a cache line "
        "and of a copied byte; from time to time, run an allreduce with each algorithm that may be fast, and keep the "
        "fastest. The same on all ranks."),
    text("AUTOTUNE_LOG", "HOROVOD_AUTOTUNE_LOG", &Config::autotune_log,
         "File to which Python's shutdown() writes the allreduce times that rank 0 measured; empty for none."),
    text("COSTS_FOLDER", "", &Config::costs_folder,
         "Folder of the costs that 'ciranda tune' measured, from which the cost model chooses algorithms; empty: the "
         "user's cache folder; /dev/null: none."),
    word("STAGING_COPY", "", &Config::staging_copy, kStagingCopies,
         "How a rank writes staging buffers over what others have read: cached (by rep movsb where the processor has "
         "fast strings, else by memcpy) or past-caches, which is faster where cores are far apart ('ciranda bench "
         "--explain' shows both rates). Empty: measured; one copy in 129 is made half by each technique."),
    integer("FUSION_THRESHOLD", "HOROVOD_FUSION_THRESHOLD", &Config::fusion_threshold_bytes, 0, 1024 * kGiB,
            "Largest number of bytes fused into one collective; 0 disables fusion. The lowest rank's value counts."),
    integer("CACHE_CAPACITY", "HOROVOD_CACHE_CAPACITY", &Config::cache_capacity, 0, 1 << 24,
            "Number of names whose signature is cached, so that ranks report ready by a number; 0 disables the cache. "
            "The lowest rank's value counts."),
    boolean("LEARNED_ORDER", "", &Config::learned_order,
            "Learn the order in which tensors become ready, and send them in planned groups. The lowest rank's value "
            "counts."),
    boolean("DIRECT_ROUNDS", "", &Config::direct_rounds,
            "Let ranks run small blocking collectives directly, without the coordinator: in shared memory, or up to 8 "
            "ranks by messages (one hop instead of two). The lowest rank's value counts."),
    integer("DIRECT_BYTES", "", &Config::direct_bytes, -1, kMiB,
            "Largest input of a direct round: in shared memory of each rank, by messages of all ranks together. 0: "
            "barriers only. -1: in shared memory 1 MiB between two ranks, 16 KiB otherwise; by messages 128 KiB "
            "(with WIRE_DTYPE 64 KiB). The lowest rank's value counts."),
    boolean("RELAYS", "", &Config::relays,
            "Between hosts, merge the ready reports of the ranks of a host, and of many hosts. The same on all ranks."),
    integer("NUM_LANES", "", &Config::num_lanes, 1, 64,
            "Lanes of each process set that are created at once; others are created on first use. Requests on "
            "different lanes do not wait for each other. The same on all ranks."),
    word("SIMD", "", &Config::simd, kSimdLevels,
         "Highest instruction set to use: baseline, avx2 or avx512; empty for the best."),
    integer("CHECK_CONSISTENCY", "", &Config::check_consistency, 0, 1 << 20,
            "Compare checksums of all ranks' results each time this number of log entries is done; 0 for never. The "
            "lowest rank's value counts."),
    boolean("CHECK_PARAMETERS", "", &Config::check_parameters,
            "Compare checksums of the parameters of all ranks before an optimizer's first step, so that a forgotten "
            "broadcast_parameters() is detected. 0 on any rank: do not."),
    real("SPIN_MICROSECONDS", "", &Config::spin_microseconds, 0, 1e6,
         "Microseconds that a waiting rank polls before it sleeps."),
    real("STALL_WARNING_SECONDS", "HOROVOD_STALL_CHECK_TIME_SECONDS", &Config::stall_warning_seconds, 0, kMaxSeconds,
         "Seconds after which a warning names the ranks that others wait for; 0 for never."),
    real("STALL_SHUTDOWN_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", &Config::stall_shutdown_seconds, 0,
         kMaxSeconds, "Seconds after which a tensor fails that some rank has not submitted; 0 for never."),
    real("STOPPED_SECONDS", "", &Config::stopped_seconds, 0, kMaxSeconds,
         "Seconds after which the launcher's agent kills a rank of an elastic job that a signal has stopped; 0 for "
         "never."),
    boolean("FAIL_OTHER_ORDERS", "", &Config::fail_other_orders,
            "Fail calls that ranks make in different orders after CIRANDA_STALL_WARNING_SECONDS, even if threads of "
            "the ranks might still make other calls. The lowest rank's value counts."),
    word("LOG_LEVEL", "HOROVOD_LOG_LEVEL", &Config::log_level, kLogLevels,
         "Least severe messages to show: trace, debug, info, warning, error or fatal."),
    word("LOG_FORMAT", "", &Config::log_format, kLogFormats,
         "How messages are written, with time (UTC), level, rank, host and step: json, an object a line, or text. "
         "Empty: text in a file, and on standard error short lines with level and rank."),
    text("LOG_FILE", "", &Config::log_file,
         "File to which each rank appends its messages; %r in the name is the rank, %h the host, and without %r the "
         "rank is put at the end. Warnings and errors are on standard error as well. Empty: standard error."),
    text("TIMELINE", "HOROVOD_TIMELINE", &Config::timeline,
         "File to which rank 0 writes a timeline of its collectives; empty or DYNAMIC for none."),
    boolean("TIMELINE_MARK_CYCLES", "HOROVOD_TIMELINE_MARK_CYCLES", &Config::timeline_mark_cycles,
            "Also mark in the timeline when the ranks agreed on what to execute."),
    word("BIND_TO", "", &Config::bind_to, kBindings,
         "CPU binding by the launcher. none: any core; core: each rank's share of its host's cores; numa: the cores of "
         "a NUMA node."),
};

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::optional<bool> parse_boolean(const std::string& given) {
  const std::string value = lower_case(given);
  if (value == "1" || value == "true" || value == "yes" || value == "on") return true;
  if (value == "0" || value == "false" || value == "no" || value == "off") return false;
  return std::nullopt;
}

// Joins the words to "a, b or c".
std::string list_of(std::span<const std::string_view> words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) list += i + 1 == words.size() ? " or " : ", ";
    list += words[i];
  }
  return list;
}

std::string number_text(double value) {
  std::string out(32, '\0');
  const auto [last, error] = std::to_chars(out.data(), out.data() + out.size(), value);
  out.resize(static_cast<std::size_t>(last - out.data()));
  return out;
}

Status refuse(const std::string& variable, const std::string& value, const std::string& expected) {
  return Status::invalid_argument(variable + "='" + value + "' is not " + expected +
                                  ". Unset it or give it such a value.");
}

Status assign(const Setting& setting, const std::string& variable, const std::string& value, Config& config) {
  const std::string range = " between " + number_text(setting.lowest) + " and " + number_text(setting.highest);
  switch (setting.type) {
    case SettingType::kText: config.*setting.text = value; return Status::ok_status();
    case SettingType::kWord: {
      const std::string given = lower_case(value);
      if (std::find(setting.words.begin(), setting.words.end(), given) == setting.words.end()) {
        return refuse(variable, value, "one of " + list_of(setting.words));
      }
      config.*setting.text = given;
      return Status::ok_status();
    }
    case SettingType::kPorts:
      if (!parse_port_range(value).ok()) return refuse(variable, value, "a range of ports such as 4000-4100");
      config.*setting.text = value;
      return Status::ok_status();
    case SettingType::kBoolean: {
      const auto parsed = parse_boolean(value);
      if (!parsed) return refuse(variable, value, "a yes or no (1, 0, true, false, on, off)");
      config.*setting.boolean = *parsed;
      return Status::ok_status();
    }
    case SettingType::kInteger: {
      const auto parsed = parse_number<std::int64_t>(value);
      const auto number = static_cast<double>(parsed.value_or(0));
      if (!parsed || number < setting.lowest || number > setting.highest) {
        return refuse(variable, value, "a whole number" + range);
      }
      config.*setting.integer = *parsed;
      return Status::ok_status();
    }
    case SettingType::kReal: {
      const auto parsed = parse_number<double>(value);
      if (!parsed || !(*parsed >= setting.lowest && *parsed <= setting.highest)) {
        return refuse(variable, value, "a number" + range);
      }
      config.*setting.real = *parsed;
      return Status::ok_status();
    }
  }
  return Status::internal("a setting of unknown type: " + variable);
}

Status check_rank(const std::string& prefix, std::int64_t rank, std::int64_t size) {
  if (rank < size) return Status::ok_status();
  return Status::invalid_argument(prefix + "RANK=" + std::to_string(rank) + " must be less than " + prefix +
                                  "SIZE=" + std::to_string(size) + ".");
}

Status check_together(const Config& config) {
  for (Status status : {check_rank("CIRANDA_", config.rank, config.size),
                        check_rank("CIRANDA_LOCAL_", config.local_rank, config.local_size),
                        check_rank("CIRANDA_CROSS_", config.cross_rank, config.cross_size)}) {
    if (!status.ok()) return status;
  }
  for (const auto& [name, value] :
       {std::pair{"SLOT_BYTES", config.slot_bytes}, {"SEGMENT_BYTES", config.segment_bytes}}) {
    if (value % 4096 == 0) continue;
    return Status::invalid_argument(std::string("CIRANDA_") + name + "=" + std::to_string(value) +
                                    " must be a multiple of 4096.");
  }
  if (config.size > 1 && config.engine == "none") {
    return Status::invalid_argument("CIRANDA_SIZE=" + std::to_string(config.size) +
                                    ", but CIRANDA_ENGINE=none says that a world of one is meant: unset one of them.");
  }
  if (config.size > 1 && (config.store.empty() || config.secret_file.empty())) {
    return Status::invalid_argument("CIRANDA_SIZE=" + std::to_string(config.size) +
                                    " but CIRANDA_STORE or CIRANDA_SECRET_FILE is not set: start the ranks with "
                                    "'ciranda run', which sets them.");
  }
  return Status::ok_status();
}

}  // namespace

std::span<const Setting> settings() { return kSettings; }

Result<Config> read_config(const GetEnv& get_env) {
  Config config;
  if (const auto value = get_env("CIRANDA_CHECK_DATA"); value && !value->empty()) {
    return Status::invalid_argument(
        "CIRANDA_CHECK_DATA is no setting any more: all bytes between hosts are checked, unless CIRANDA_WIRE is none. "
        "Unset it.");
  }
  for (const Setting& setting : kSettings) {
    std::string variable = "CIRANDA_" + std::string(setting.name);
    auto value = get_env(variable);
    if (!value && !setting.horovod_name.empty()) {
      variable = setting.horovod_name;
      value = get_env(variable);
    }
    if (!value || value->empty()) continue;
    if (Status status = assign(setting, variable, *value, config); !status.ok()) return status;
  }
  if (Status status = check_together(config); !status.ok()) return status;
  return config;
}

GetEnv environment() {
  return [](const std::string& variable) -> std::optional<std::string> {
    const char* value =
        std::getenv(variable.c_str());  // NOLINT(concurrency-mt-unsafe): no thread sets variables meanwhile
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

GetEnv environment_behind(SettingValues settings) {
  return [settings = std::move(settings), rest = environment()](const std::string& variable) {
    for (const auto& [name, value] : settings) {
      if (name == variable) return std::optional<std::string>(value);
    }
    return rest(variable);
  };
}

Result<Config> read_config() { return read_config(environment()); }

}  // namespace ciranda
