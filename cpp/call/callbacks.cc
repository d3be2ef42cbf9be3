#include "call/callbacks.hpp"

#include <unistd.h>

#include <exception>
#include <string>

namespace ciranda {
namespace {

thread_local bool is_in_direct_callback = false;

// A single write, so that lines of several threads do not mix.
void warn(const std::string& text) {
  const std::string line = "ciranda: warning: " + text + "\n";
  [[maybe_unused]] const auto n_written = ::write(STDERR_FILENO, line.data(), line.size());
}

void report_exception(const char* what) noexcept {
  try {
    warn("a completion callback threw " + std::string(what) +
         "; the engine ignores the exception. Catch it in the callback.");
  } catch (...) {  // no memory for the line
  }
}

}  // namespace

void call_back(const std::function<void()>& callback) noexcept {
  try {
    callback();
  } catch (const std::exception& exception) {
    report_exception(exception.what());
  } catch (...) {
    report_exception("something that is no std::exception");
  }
}

DirectCallback::DirectCallback() : was_in_one_(is_in_direct_callback) { is_in_direct_callback = true; }
DirectCallback::~DirectCallback() { is_in_direct_callback = was_in_one_; }

Status DirectCallback::refuse(const char* what) {
  if (!is_in_direct_callback) return Status::ok_status();
  const std::string why = "to " + std::string(what) +
                          " inside a direct callback is refused: it runs on the thread that makes progress, which "
                          "would wait for itself. Hand the work to another thread, or leave out "
                          "CIRANDA_REQUEST_DIRECT_CALLBACK.";
  warn(why);
  return Status::invalid_argument(why);
}

}  // namespace ciranda
