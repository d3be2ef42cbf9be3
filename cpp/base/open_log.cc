#include "base/open_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace ciranda {
namespace {

std::string host_of(const Config& config) {
  if (!config.host.empty()) return config.host;
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

LogFormat format_of(const Config& config) {
  if (config.log_format == kLogFormats[static_cast<std::size_t>(LogFormat::kJson)]) return LogFormat::kJson;
  return config.log_format.empty() && config.log_file.empty() ? LogFormat::kShort : LogFormat::kText;
}

Logger logger_of(const Config& config, UniqueFd file) {
  auto destination = std::make_shared<Logger::Destination>();
  destination->format = format_of(config);
  destination->host = host_of(config);
  destination->file = std::move(file);
  return {static_cast<int>(config.rank), log_level_from(config.log_level), std::move(destination)};
}

UniqueFd open_file(const Config& config) {
  constexpr int kMode = 0666;
  if (config.log_file.empty()) return {};
  return UniqueFd(
      ::open(log_file_of(config, host_of(config)).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kMode));
}

}  // namespace

std::string log_file_of(const Config& config, const std::string& host) {
  const std::string& pattern = config.log_file;
  const std::string rank = std::to_string(config.rank);
  std::string name;
  bool has_rank = config.job.empty() && config.size == 1;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next != 'r' && next != 'h' && next != '%') {
      name += pattern[i];
      continue;
    }
    name += next == 'r' ? rank : next == 'h' ? host : "%";
    has_rank |= next == 'r';
    ++i;
  }
  return has_rank ? name : name + "." + rank;
}

Result<Logger> open_log(const Config& config) {
  UniqueFd file = open_file(config);
  if (!file.valid() && !config.log_file.empty()) {
    return Status::invalid_argument("CIRANDA_LOG_FILE='" + config.log_file + "': cannot write to " +
                                    log_file_of(config, host_of(config)) + ": " + std::strerror(errno) +
                                    ". Make its folder, or name another file.");
  }
  return logger_of(config, std::move(file));
}

Logger open_log_anyhow(Config config, int rank) {
  config.rank = rank;
  return logger_of(config, open_file(config));
}

}  // namespace ciranda
