#include "base/status.hpp"

#include <cerrno>
#include <system_error>

namespace ciranda {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kOk: return "Ok";
    case ErrorKind::kInvalidArgument: return "InvalidArgument";
    case ErrorKind::kMismatch: return "Mismatch";
    case ErrorKind::kRanksLost: return "RanksLost";
    case ErrorKind::kTimeout: return "Timeout";
    case ErrorKind::kAborted: return "Aborted";
    case ErrorKind::kInternal: return "Internal";
  }
  return "Unknown";
}

Status Status::from_errno(std::string_view what) {
  const int code = errno;
  return internal(std::string(what) + ": " + std::generic_category().message(code));
}

}  // namespace ciranda
