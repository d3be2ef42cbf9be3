#include "membership/secret.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>

#include "base/unique_fd.hpp"

namespace ciranda {
Result<Secret> parse_secret(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  text = first == std::string_view::npos ? std::string_view() : text.substr(first);
  text = text.substr(0, text.find_last_not_of(kBlank) + 1);
  Secret secret{};
  const Status malformed = Status::invalid_argument("the job's secret must be 64 hexadecimal digits");
  if (text.size() != 2 * secret.size()) return malformed;
  for (std::size_t i = 0; i < secret.size(); ++i) {
    const char* const digits = text.data() + 2 * i;
    std::uint8_t value = 0;
    if (std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2) return malformed;
    secret[i] = std::byte{value};
  }
  return secret;
}

Result<Secret> read_secret(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.valid()) return Status::from_errno("cannot open the file with the job's secret, " + path);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return Status::from_errno("cannot look at " + path);
  if (S_ISREG(info.st_mode) && (info.st_mode & 0077) != 0) {
    return Status::invalid_argument(path + " holds the job's secret and others may read it: chmod 600 " + path);
  }
  std::array<char, 128> text{};
  std::size_t n_bytes = 0;
  while (n_bytes < text.size()) {
    const ssize_t n_read = read(file.get(), text.data() + n_bytes, text.size() - n_bytes);
    if (n_read < 0 && errno == EINTR) continue;
    if (n_read < 0) return Status::from_errno("cannot read " + path);
    if (n_read == 0) break;
    n_bytes += static_cast<std::size_t>(n_read);
  }
  auto secret = parse_secret({text.data(), n_bytes});
  if (!secret.ok()) return Status::invalid_argument(path + ": " + secret.status().message());
  return secret;
}

}  // namespace ciranda
