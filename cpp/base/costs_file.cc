#include "base/costs_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/checksum.hpp"
#include "base/parse_number.hpp"
#include "base/unique_fd.hpp"

namespace ciranda {
namespace {

constexpr std::string_view kHead = "ciranda costs 1";
constexpr std::size_t kMostFileBytes = 4096;

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  constexpr std::string_view kKey = "model name";
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.compare(0, kKey.size(), kKey) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string describe_machine() {
  return cpu_model() + ", " + std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + " cores, version " CIRANDA_VERSION;
}

std::string cache_folder(const GetEnv& get_env) {
  if (const auto cache = get_env("XDG_CACHE_HOME"); cache && cache->starts_with('/')) return *cache + "/ciranda";
  if (const auto home = get_env("HOME"); home && home->starts_with('/')) return *home + "/.cache/ciranda";
  return "";
}

std::string text_of(const CostsFile& file, const HostCosts& costs) {
  std::string text = std::string(kHead) + "\n" + file.machine + "\n";
  for (const HostCost& each : kHostCosts) {
    text += std::string(each.name) + " " + std::to_string(costs.*each.value) + "\n";
  }
  return text;
}

// Removes the first line from `text`, and returns it.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

Status parse_line(std::string_view line, const HostCost& expected, HostCosts& costs) {
  const std::string where = "its line '" + std::string(line.substr(0, 100)) + "' is not ";
  if (!line.starts_with(expected.name) || line.substr(expected.name.size(), 1) != " ") {
    return Status::invalid_argument(where + "about " + std::string(expected.name));
  }
  line.remove_prefix(expected.name.size() + 1);
  const auto value = parse_number<std::uint64_t>(line);
  if (!value || *value < expected.lowest || *value > expected.highest) {
    return Status::invalid_argument(where + "a number from " + std::to_string(expected.lowest) + " to " +
                                    std::to_string(expected.highest));
  }
  costs.*expected.value = *value;
  return Status::ok_status();
}

Result<std::optional<HostCosts>> parse(std::string_view text, const CostsFile& file) {
  if (take_line(text) != kHead) return Status::invalid_argument("it does not begin with '" + std::string(kHead) + "'");
  if (take_line(text) != file.machine) return Status::invalid_argument("it is not of this machine: " + file.machine);
  HostCosts costs;
  for (const HostCost& each : kHostCosts) {
    if (Status status = parse_line(take_line(text), each, costs); !status.ok()) return status;
  }
  if (!text.empty()) return Status::invalid_argument("it has text after its last line");
  return std::optional(costs);
}

// Reads at most kMostFileBytes + 1 bytes. Fails unless it is a regular file.
Result<std::string> read_some(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return Status::invalid_argument("it is no regular file");
  std::string text(kMostFileBytes + 1, '\0');
  std::size_t n_read = 0;
  while (n_read < text.size()) {
    const ssize_t n = read(fd, text.data() + n_read, text.size() - n_read);
    if (n < 0) return Status::from_errno("it cannot be read");
    if (n == 0) break;
    n_read += static_cast<std::size_t>(n);
  }
  text.resize(n_read);
  return text;
}

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0) return Status::from_errno("cannot write costs");
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return Status::ok_status();
}

}  // namespace

CostsFile costs_file(const std::string& folder, const GetEnv& get_env) {
  CostsFile file;
  file.machine = describe_machine();
  const std::string place = folder.empty() ? cache_folder(get_env) : folder;
  if (place.empty()) return file;
  const std::span<const char> characters(file.machine);
  file.path = place + "/costs-" + std::to_string(checksum(std::as_bytes(characters)));
  return file;
}

Result<std::optional<HostCosts>> load_costs(const CostsFile& file) {
  if (file.path.empty()) return std::optional<HostCosts>();
  const UniqueFd fd(open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid() && (errno == ENOENT || errno == ENOTDIR)) return std::optional<HostCosts>();
  Result<std::string> text = fd.valid() ? read_some(fd.get()) : Status::from_errno("it cannot be opened");
  auto costs = text.ok() ? parse(text.value(), file) : Result<std::optional<HostCosts>>(text.status());
  if (costs.ok()) return costs;
  return Status::invalid_argument("the costs in " + file.path + " are not used: " + costs.status().message() +
                                  ". 'ciranda tune' writes them anew.");
}

Status save_costs(const CostsFile& file, const HostCosts& costs) {
  if (file.path.empty()) return Status::invalid_argument("no folder to keep costs in: neither HOME nor XDG_CACHE_HOME");
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file.path).parent_path(), error);
  std::string temporary = file.path + ".XXXXXX";
  const UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) return Status::from_errno("cannot write " + file.path);
  Status status = write_all(fd.get(), text_of(file, costs));
  if (status.ok() && std::rename(temporary.c_str(), file.path.c_str()) != 0) {
    status = Status::from_errno("cannot write " + file.path);
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace ciranda
