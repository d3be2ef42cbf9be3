#include "engine/connect.hpp"

#include <chrono>
#include <cmath>
#include <optional>
#include <system_error>
#include <utility>

#include "base/costs_file.hpp"
#include "base/log.hpp"
#include "base/open_log.hpp"
#include "base/other_launchers.hpp"
#include "base/staging_choice.hpp"
#include "engine/world_text.hpp"
#include "kernels/kernels.hpp"
#include "membership/bootstrap.hpp"
#include "membership/secret.hpp"

namespace ciranda {
namespace {

Status limit_simd(const std::string& name) {
  if (name.empty()) return Status::ok_status();
  for (const auto level : {kernels::SimdLevel::kBaseline, kernels::SimdLevel::kAvx2, kernels::SimdLevel::kAvx512}) {
    if (name != kernels::to_string(level)) continue;
    kernels::set_simd_level(level);
    return Status::ok_status();
  }
  return Status::invalid_argument("CIRANDA_SIMD='" + name + "' is none of baseline, avx2, avx512.");
}

// A broken file causes a warning, not an error.
std::optional<HostCosts> measured_costs(const Config& config, const Logger& logger) {
  const CostsFile file = costs_file(config.costs_folder, environment());
  const auto costs = load_costs(file);
  if (costs.ok()) {
    logger.debug([&] {
      return std::string("the cost model begins with ") +
             (costs.value() ? "the costs of this host in " : "usual costs: none are in ") + file.path;
    });
    return costs.value();
  }
  logger.warning(costs.status().message());
  return std::nullopt;
}

std::chrono::milliseconds whole_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
}

Result<BootstrapOptions> bootstrap_options(const Config& config, std::uint64_t epoch, const Logger& logger) {
  BootstrapOptions options;
  options.rank = static_cast<int>(config.rank);
  options.size = static_cast<int>(config.size);
  options.job = config.job;
  options.epoch = epoch;
  options.host = config.host;
  options.host_id = config.host_id;
  options.port_range = config.port_range;
  options.interface = config.interface;
  options.use_shared_memory = config.shared_memory;
  options.slot_bytes = static_cast<std::uint64_t>(config.slot_bytes);
  options.n_lanes = static_cast<std::uint64_t>(config.num_lanes);
  options.n_sockets = static_cast<std::uint64_t>(config.sockets);
  options.uses_relays = config.relays;
  options.wire = config.wire;
  options.algorithm = config.algorithm;
  options.wire_dtype = config.wire_dtype;
  options.gpu_way = config.gpu_way;
  options.gpu_reduce = config.gpu_reduce;
  options.one_shot_bytes = config.one_shot_bytes;
  options.segment_bytes = config.segment_bytes;
  options.autotune = config.autotune;
  options.start_timeout = whole_milliseconds(config.start_timeout_seconds);
  options.link_timeout = whole_milliseconds(config.link_timeout_seconds);
  if (logger.is_on(LogLevel::kDebug)) {
    options.tell = [logger](const std::string& text) { logger.debug([&] { return text; }); };
  }
  options.warn = [logger](const std::string& text) { logger.warning(text); };
  if (config.size == 1) {
    if (const auto doubt = doubt_that_one_is_meant(environment())) logger.warning(*doubt);
    return options;
  }
  options.costs = measured_costs(config, logger);
  options.store = split_candidates(config.store);
  Result<Secret> secret = read_secret(config.secret_file);
  if (!secret.ok()) return secret.status();
  options.secret = secret.value();
  return options;
}

Result<std::unique_ptr<Engine>> start_engine(std::unique_ptr<Mesh> mesh, const Config& config,
                                             MayOthersCall may_others_call) {
  try {
    return Engine::create(std::move(mesh), config, all_backends(), std::move(may_others_call));
  } catch (const std::system_error& error) {
    return Status::internal("cannot start the engine's thread: " + error.code().message() +
                            ": is the number of processes limited (ulimit -u, or the cgroup's pids.max)?");
  }
}

// Logs that this rank has joined; rank 0 also logs what all ranks have in common.
void log_world(const Mesh& mesh, const Config& config, std::uint64_t epoch, double seconds, const Logger& logger) {
  logger.info([&] { return joined_text(mesh, config, epoch, seconds); });
  if (mesh.rank() != 0 || mesh.size() == 1 || !logger.is_on(LogLevel::kInfo)) return;
  for (const std::string& text : host_texts(mesh)) logger.info([&] { return text; });
}

// How a repeated blocking allreduce of so many bytes is executed.
std::string way_of_allreduce(const Engine& engine, std::size_t n_bytes) {
  const std::string_view agreement = engine.agreement(Collective::kAllreduce, n_bytes);
  if (agreement != "the log") return std::string(agreement);
  for (const Candidate& each : engine.candidates(Collective::kAllreduce, n_bytes)) {
    if (each.is_chosen) return std::string(each.name);
  }
  return "an unknown algorithm";
}

void log_ways(const Engine& engine, const Logger& logger) {
  if (engine.rank() != 0 || engine.size() == 1) return;
  logger.info([&] { return ways_text([&](std::size_t n_bytes) { return way_of_allreduce(engine, n_bytes); }); });
}

}  // namespace

Result<std::unique_ptr<Engine>> connect(const Config& config, std::uint64_t epoch,
                                        const Engine::Interrupted& interrupted, MayOthersCall may_others_call) {
  const auto begin = std::chrono::steady_clock::now();
  if (Status status = limit_simd(config.simd); !status.ok()) return status;
  const Result<Logger> logger = open_log(config);
  if (!logger.ok()) return logger.status();
  Result<BootstrapOptions> options = bootstrap_options(config, epoch, logger.value());
  if (!options.ok()) return options.status();
  options.value().interrupted = interrupted;
  Result<std::unique_ptr<Mesh>> mesh = join_world(options.value());
  if (!mesh.ok()) return mesh.status();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  log_world(*mesh.value(), config, epoch, taken.count(), logger.value());
  staging_choice().prescribe(staging_copy_named(config.staging_copy));
  auto engine = start_engine(std::move(mesh).value(), config, std::move(may_others_call));
  if (!engine.ok()) return engine;
  log_ways(*engine.value(), logger.value());
  // Scripts for Horovod set it to DYNAMIC if they start the timeline later.
  if (!config.timeline.empty() && config.timeline != "DYNAMIC") {
    Status status = engine.value()->start_timeline(config.timeline, config.timeline_mark_cycles);
    if (!status.ok()) return status;
  }
  return engine;
}

}  // namespace ciranda
