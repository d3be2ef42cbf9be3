// recording: ciranda_record_start() to ciranda_record_stop().
#include "observe/recording.hpp"

#include <cstring>
#include <memory>
#include <vector>

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "ciranda/ciranda.h"

struct ciranda_recording {
  std::unique_ptr<ciranda::Recording> recording;
  std::vector<ciranda::Record> given;  // the caller may read their names
};

namespace ciranda::capi {
namespace {

ciranda_record translate(const Record& from) {
  return {.name = from.name.c_str(),
          .collective = static_cast<ciranda_collective>(from.collective),
          .path = static_cast<ciranda_path>(from.path),
          .status = static_cast<ciranda_status>(from.outcome),
          .process_set = from.process_set,
          .lane = from.lane,
          .n_bytes = from.n_bytes,
          .submitted_ns = from[Stage::kSubmitted],
          .taken_ns = from[Stage::kTaken],
          .ready_ns = from[Stage::kReady],
          .agreed_ns = from[Stage::kAgreed],
          .started_ns = from[Stage::kStarted],
          .done_ns = from[Stage::kDone]};
}

void read(ciranda_recording& recording, std::size_t capacity) {
  recording.given.clear();
  Record record;
  while (recording.given.size() < capacity && recording.recording->read(record)) recording.given.push_back(record);
}

}  // namespace
}  // namespace ciranda::capi

extern "C" {

ciranda_status ciranda_record_start(ciranda_context* context, ciranda_recording** recording) noexcept {
  if (recording != nullptr) *recording = nullptr;
  if (context == nullptr || recording == nullptr) return CIRANDA_INVALID_ARGUMENT;
  return ciranda::capi::guarded([&] {
    auto handle = std::make_unique<ciranda_recording>();
    handle->recording = context->engine->record();
    *recording = handle.release();
    return CIRANDA_OK;
  });
}

size_t ciranda_record_read(ciranda_recording* recording, ciranda_record* records, size_t record_struct_size,
                           size_t capacity) noexcept {
  if (recording == nullptr || records == nullptr || record_struct_size < sizeof(ciranda_record)) return 0;
  ciranda::capi::guarded([&] {
    ciranda::capi::read(*recording, capacity);
    return CIRANDA_OK;
  });
  // The caller's structs may be longer than this library's: fields that the library does not know become zero.
  auto* to = reinterpret_cast<unsigned char*>(records);
  for (const ciranda::Record& given : recording->given) {
    const ciranda_record record = ciranda::capi::translate(given);
    std::memset(to, 0, record_struct_size);
    std::memcpy(to, &record, sizeof(record));
    to += record_struct_size;
  }
  return recording->given.size();
}

uint64_t ciranda_record_lost(const ciranda_recording* recording) noexcept {
  return recording == nullptr ? 0 : recording->recording->n_lost();
}

void ciranda_record_stop(ciranda_recording* recording) noexcept {
  const std::unique_ptr<ciranda_recording> owned(recording);
}

}  // extern "C"
