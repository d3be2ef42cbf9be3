#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/pair_costs.hpp"
#include "base/turns.hpp"
#include "bindings/python/bindings.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"

namespace ciranda::python {

namespace nb = nanobind;

namespace {

using Memory = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class LineProbe {
 public:
  LineProbe(Memory memory, bool is_first)
      : memory_(std::move(memory)), turns_(word_in(memory_), is_first ? Turns::Side::kFirst : Turns::Side::kSecond) {}

  std::optional<double> one_way_ns(double seconds) {
    const auto time = std::chrono::duration_cast<Turns::Clock::duration>(std::chrono::duration<double>(seconds));
    const GilReleased released;
    return turns_.one_way_ns(Turns::Clock::now() + time);
  }

 private:
  static std::atomic<std::uint64_t>& word_in(const Memory& memory) {
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(memory.data()) % alignof(std::atomic<std::uint64_t>) == 0;
    if (memory.size() < sizeof(std::uint64_t) || !is_aligned) raise_invalid_argument("a line needs 8 aligned bytes");
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(memory.data());
  }

  Memory memory_;
  Turns turns_;
};

}  // namespace

void bind_line_probe(nb::module_& m) {
  nb::class_<LineProbe>(m, "LineProbe", "Sends a cache line to and fro between two processes.")
      .def(nb::init<Memory, bool>(), nb::arg("memory"), nb::arg("is_first"))
      .def("one_way_ns", &LineProbe::one_way_ns, nb::arg("seconds"),
           "The one-way time of the line. Both processes call it at the same time; None if the other is too late.");
  m.def(
      "distance_of", [](double line_ns) { return to_string(distance_of(line_ns)); }, nb::arg("line_ns"),
      "The distance of two cores between which a line takes this time: near or far.");
}

}  // namespace ciranda::python
