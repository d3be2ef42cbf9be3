// Status and Result: how every fallible call inside the engine reports failure.
//
// Errors are values in the engine and become exceptions only at a binding. Their kinds tell what the caller can do
// (see ErrorKind), and every message names the operation, the tensor and the ranks concerned.
// Thread-safety: plain values; share them as you would a std::string.
//
// Used by all layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/exported.hpp"
#include "ciranda/ciranda.h"

namespace ciranda {

enum class ErrorKind : std::uint8_t {
  kOk = CIRANDA_OK,
  kInvalidArgument = CIRANDA_INVALID_ARGUMENT,  // this call is wrong: fix the call
  kMismatch = CIRANDA_MISMATCH,     // ranks disagree about one tensor: fix the script; the engine goes on working
  kRanksLost = CIRANDA_RANKS_LOST,  // a rank died: rebuild the world
  kTimeout = CIRANDA_TIMEOUT,       // a rank never arrived, or a peer did not answer in time
  kAborted = CIRANDA_ABORTED,       // shut down, here or on another rank
  kInternal = CIRANDA_INTERNAL,     // our bug, or the operating system refused something it should grant
};

// "InvalidArgument", "Mismatch", ...
CIRANDA_EXPORTED std::string_view to_string(ErrorKind kind);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}

  static Status ok_status() { return {}; }
  static Status invalid_argument(std::string message) { return {ErrorKind::kInvalidArgument, std::move(message)}; }
  static Status mismatch(std::string message) { return {ErrorKind::kMismatch, std::move(message)}; }
  static Status ranks_lost(std::string message) { return {ErrorKind::kRanksLost, std::move(message)}; }
  static Status timeout(std::string message) { return {ErrorKind::kTimeout, std::move(message)}; }
  static Status aborted(std::string message) { return {ErrorKind::kAborted, std::move(message)}; }
  static Status internal(std::string message) { return {ErrorKind::kInternal, std::move(message)}; }
  // An Internal error carrying the text of the current errno.
  static Status from_errno(std::string_view what);

  bool ok() const { return kind_ == ErrorKind::kOk; }
  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }

 private:
  ErrorKind kind_ = ErrorKind::kOk;
  std::string message_;
};

// A value or the reason why there is none. REQUIRES: ok() before value().
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor): reads like a return
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace ciranda
