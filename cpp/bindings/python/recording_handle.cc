#include "bindings/python/recording_handle.hpp"

#include <string>
#include <string_view>

namespace ciranda::python {
namespace {

nb::str text(std::string_view of) { return nb::str(std::string(of).c_str()); }

// Replaces invalid UTF-8: the recorder may have cut a name in the middle of a character.
nb::object name_of(const Record& record) {
  return nb::steal(PyUnicode_DecodeUTF8(record.name.data(), static_cast<Py_ssize_t>(record.name.size()), "replace"));
}

nb::tuple row_of(const Record& record) {
  const auto at = [&](Stage stage) { return record[stage]; };
  return nb::make_tuple(name_of(record), text(to_string(record.collective)), text(to_string(record.path)),
                        static_cast<int>(record.outcome), record.n_bytes, record.process_set, record.lane,
                        nb::make_tuple(at(Stage::kSubmitted), at(Stage::kTaken), at(Stage::kReady), at(Stage::kAgreed),
                                       at(Stage::kStarted), at(Stage::kDone)));
}

}  // namespace

// Reads at most the recorder's capacity: other threads may add records meanwhile.
nb::list RecordingHandle::read() {
  nb::list rows;
  Record record;
  for (std::size_t i = 0; i < Recorder::kMostRecords && recording_ && recording_->read(record); ++i) {
    rows.append(row_of(record));
  }
  return rows;
}

void RecordingHandle::stop() {
  n_lost_ = n_lost();
  recording_.reset();
}

void bind_recording_handle(nb::module_& m) {
  nb::class_<RecordingHandle>(m, "Recording", "Records this rank's calls while it exists.")
      .def("read", &RecordingHandle::read, "The calls completed since the last read, in order of completion.")
      .def_prop_ro("n_lost", &RecordingHandle::n_lost)
      .def("stop", &RecordingHandle::stop);
}

}  // namespace ciranda::python
