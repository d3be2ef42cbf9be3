#include "bindings/jax/handler.hpp"

namespace ciranda::jax {

namespace {

// Fields may move with the major version. The oldest minor version has all fields of Api.
constexpr std::int32_t kMajor = 0;
constexpr std::int32_t kOldestMinor = 1;

bool is_known(const ffi::Version& version) { return version.major == kMajor && version.minor >= kOldestMinor; }

}  // namespace

bool is_question(const ffi::Frame* frame) {
  const ffi::Extension* extension = frame->extensions;
  if (extension == nullptr || extension->kind != ffi::kMetadata) return false;
  ffi::Metadata* metadata = reinterpret_cast<const ffi::MetadataExtension*>(extension)->metadata;
  const bool has_table = frame->api != nullptr && is_known(frame->api->version);
  metadata->version.major = has_table ? frame->api->version.major : kMajor;
  metadata->version.minor = has_table ? frame->api->version.minor : kOldestMinor;
  return true;
}

}  // namespace ciranda::jax
