// THE table of settings: name, Horovod's name for it, default, range, meaning; and the values read from it.
//
// A setting is read from CIRANDA_<NAME>, else from Horovod's variable, else it has its default. A value that does not
// parse or is out of range is an InvalidArgument that names the variable, the value and the accepted values.
//
// Used by backend/, base/, bindings/, capi/, engine/ and WayExpected, as plain values. read_config() and environment(),
// which read the environment, are called by capi/, connect(), EngineHandle and bindings/python/tables.cc, on the thread
// of the program that asks; no thread may change the environment meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/exported.hpp"
#include "base/status.hpp"

namespace ciranda {

struct Config {
  // Identity; given by the launcher.
  std::int64_t rank = 0;
  std::int64_t size = 1;
  std::int64_t local_rank = 0;
  std::int64_t local_size = 1;
  std::int64_t cross_rank = 0;
  std::int64_t cross_size = 1;
  std::string host;
  std::string host_id;
  std::string job;
  std::string store;
  std::string secret_file;
  std::string page_file;
  std::string records_file;
  std::int64_t records_from_step = 0;
  std::int64_t records_until_step = 0;  // 0: to the end
  std::string engine;                   // "none": a world of one, whatever launcher started this process
  // Membership and transports.
  double start_timeout_seconds = 30;
  std::string port_range;
  std::string interface;
  std::string wire = "authenticate";
  std::int64_t sockets = 0;  // 0: one for each interface
  double link_timeout_seconds = 3;
  bool shared_memory = true;
  // Data.
  std::int64_t slot_bytes = 512 << 10;
  std::string algorithm;
  std::int64_t segment_bytes = 0;    // 0: by cost
  std::int64_t one_shot_bytes = -1;  // -1: by cost
  std::string wire_dtype;
  std::string gpu_way = "auto";
  std::string gpu_reduce = "nccl";
  std::string nccl;  // empty: found by itself
  bool nccl_between_hosts = false;
  std::string costs_folder;
  std::string staging_copy;  // empty: the faster, as measured (staging_choice.hpp)
  std::int64_t fusion_threshold_bytes = 128 << 20;
  std::int64_t cache_capacity = 65536;
  bool learned_order = true;
  bool direct_rounds = true;
  std::int64_t direct_bytes = -1;
  bool relays = true;
  bool autotune = true;
  std::int64_t num_lanes = 1;
  std::string simd;
  std::int64_t check_consistency = 0;
  // Progress.
  double spin_microseconds = 200;
  // Faults.
  double stall_warning_seconds = 10;
  double stall_shutdown_seconds = 600;
  bool fail_other_orders = false;
  std::string log_level = "warning";
  std::string log_format;  // empty: short lines on standard error, text in a file
  std::string log_file;
  // Not used by the engine.
  bool check_parameters = true;
  double stopped_seconds = 60;
  std::string timeline;
  bool timeline_mark_cycles = false;
  std::string autotune_log;
  std::string bind_to = "none";
};

enum class SettingType : std::uint8_t {
  kInteger,
  kReal,
  kBoolean,
  kWord,   // one of a list, in any case; kept in lower case
  kPorts,  // "low-high", or one port
  kText,   // any
};

struct Setting {
  std::string_view name;          // after "CIRANDA_"
  std::string_view horovod_name;  // whole variable, empty if Horovod has none
  SettingType type;
  double lowest;   // numbers only
  double highest;  // numbers only
  std::string_view meaning;
  // Exactly one of these is set, according to the type.
  std::int64_t Config::*integer = nullptr;
  double Config::*real = nullptr;
  bool Config::*boolean = nullptr;
  std::string Config::*text = nullptr;  // kWord, kPorts and kText
  std::span<const std::string_view> words = {};
};

CIRANDA_EXPORTED std::span<const Setting> settings();

using GetEnv = std::function<std::optional<std::string>(const std::string& variable)>;
CIRANDA_EXPORTED Result<Config> read_config(const GetEnv& get_env);
// The environment of the process.
CIRANDA_EXPORTED GetEnv environment();
// The environment, overridden by explicit settings.
using SettingValues = std::vector<std::pair<std::string, std::string>>;
CIRANDA_EXPORTED GetEnv environment_behind(SettingValues settings);
CIRANDA_EXPORTED Result<Config> read_config();

}  // namespace ciranda
