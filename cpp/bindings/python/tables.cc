#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/costs_file.hpp"
#include "base/dtype.hpp"
#include "base/host_costs.hpp"
#include "base/other_launchers.hpp"
#include "base/reduce_op.hpp"
#include "base/staging_choice.hpp"
#include "bindings/python/bindings.hpp"
#include "bindings/python/errors.hpp"
#include "call/op_table.hpp"
#include "engine/engine.hpp"
#include "engine/examined_devices.hpp"
#include "kernels/kernels.hpp"
#include "observe/counter_page.hpp"
#include "observe/stages.hpp"

namespace ciranda::python {

namespace nb = nanobind;

namespace {

template <typename Table>
nb::dict numbers_of(const Table& table, auto member) {
  nb::dict numbers;
  for (const auto& row : table) numbers[nb::str(row.name.data(), row.name.size())] = static_cast<int>(row.*member);
  return numbers;
}

nb::object value_of(const Setting& setting, const Config& config) {
  if (setting.integer != nullptr) return nb::int_(config.*setting.integer);
  if (setting.real != nullptr) return nb::float_(config.*setting.real);
  if (setting.boolean != nullptr) return nb::bool_(config.*setting.boolean);
  const std::string& text = config.*setting.text;
  return nb::str(text.data(), text.size());
}

nb::list settings_table() {
  const Config defaults;
  nb::list rows;
  for (const Setting& setting : settings()) {
    nb::dict row;
    row["name"] = "CIRANDA_" + std::string(setting.name);
    row["horovod_name"] = setting.horovod_name;
    row["default"] = value_of(setting, defaults);
    const bool has_range = setting.integer != nullptr || setting.real != nullptr;
    row["lowest"] = has_range ? nb::object(nb::float_(setting.lowest)) : nb::none();
    row["highest"] = has_range ? nb::object(nb::float_(setting.highest)) : nb::none();
    row["meaning"] = setting.meaning;
    rows.append(std::move(row));
  }
  return rows;
}

nb::str text_of(std::string_view text) { return nb::str(text.data(), text.size()); }

template <typename Accepts>
nb::list type_names(const Accepts& accepts) {
  nb::list names;
  for (const DataTypeInfo& row : kDataTypes) {
    if (accepts(row.dtype)) names.append(row.name);
  }
  return names;
}

nb::list reduce_op_table() {
  nb::list rows;
  for (const ReduceOpInfo& op : kReduceOps) {
    nb::dict row;
    row["name"] = op.name;
    row["number"] = static_cast<int>(op.op);
    row["meaning"] = op.meaning;
    row["takes"] = type_names([&](DataType dtype) { return accepts(op.op, dtype); });
    row["scales"] = type_names([&](DataType dtype) { return accepts_factors(op.op, dtype); });
    rows.append(std::move(row));
  }
  return rows;
}

nb::list collective_table() {
  nb::list rows;
  for (const CollectiveInfo& collective : kCollectives) {
    if (collective.collective == Collective::kAddLane) continue;  // internal to the engine
    nb::dict row;
    row["name"] = collective.name;
    row["number"] = static_cast<int>(collective.collective);
    row["is_reduction"] = collective.is_reduction;
    row["has_root"] = collective.has_root;
    row["has_tensors"] = collective.has_tensors;
    row["first_dim_may_differ"] = collective.first_dim_may_differ || collective.takes_splits;
    rows.append(std::move(row));
  }
  return rows;
}

// The layout of a rank's page of counters: offsets and lengths in words.
nb::dict page_layout() {
  nb::dict fields;
  for (const PageField& field : kPageFields) fields[text_of(field.name)] = nb::make_tuple(field.at, field.n_words);
  nb::list of_calls;
  for (const std::string_view name : kPageCallFields) of_calls.append(text_of(name));
  nb::list of_link;
  for (const std::string_view name : kPageLinkFields) of_link.append(text_of(name));
  nb::list of_set;
  for (const std::string_view name : kPageSetFields) of_set.append(text_of(name));
  nb::list of_shown;
  for (const std::string_view name : kPageShownFields) of_shown.append(text_of(name));
  nb::list paths;
  for (std::uint8_t path = 0; path <= static_cast<std::uint8_t>(Path::kPlan); ++path) {
    paths.append(text_of(to_string(static_cast<Path>(path))));
  }
  nb::dict layout;
  layout["magic"] = kPageMagic;
  layout["version"] = kPageVersion;
  layout["n_bytes"] = sizeof(CounterPage);
  layout["fields"] = std::move(fields);
  layout["call_fields"] = std::move(of_calls);
  layout["link_fields"] = std::move(of_link);
  layout["set_fields"] = std::move(of_set);
  layout["shown_fields"] = std::move(of_shown);
  layout["paths"] = std::move(paths);
  return layout;
}

nb::dict effective_settings() {
  const Result<Config> config = read_config();
  raise_unless_ok(config.status());
  nb::dict values;
  for (const Setting& setting : settings()) {
    values[("CIRANDA_" + std::string(setting.name)).c_str()] = value_of(setting, config.value());
  }
  return values;
}

nb::list launcher_variables_table() {
  nb::list rows;
  for (const LauncherVariable& row : launcher_variables()) {
    nb::dict each;
    each["name"] = row.name;
    each["launcher"] = row.launcher;
    each["is_index"] = is_index(row);
    each["describes_hosts"] = describes_hosts(row);
    rows.append(std::move(each));
  }
  return rows;
}

GetEnv in(const std::map<std::string, std::string>& environ) {
  return [&environ](const std::string& variable) -> std::optional<std::string> {
    const auto found = environ.find(variable);
    return found == environ.end() ? std::nullopt : std::optional(found->second);
  };
}

// Why a process of this environment would be a world of one by accident; empty if it would not.
std::string why_not_alone(const std::map<std::string, std::string>& environ) {
  return refuse_one_by_accident(in(environ)).message();
}

std::string doubt_of_being_alone(const std::map<std::string, std::string>& environ) {
  return doubt_that_one_is_meant(in(environ)).value_or("");
}

CostsFile costs_file_of_environment() {
  const Result<Config> config = read_config();
  raise_unless_ok(config.status());
  return costs_file(config.value().costs_folder, environment());
}

nb::list host_costs_table() {
  const HostCosts defaults;
  nb::list rows;
  for (const HostCost& each : kHostCosts) {
    nb::dict row;
    row["name"] = each.name;
    row["default"] = defaults.*each.value;
    row["lowest"] = each.lowest;
    row["highest"] = each.highest;
    row["meaning"] = each.meaning;
    rows.append(std::move(row));
  }
  return rows;
}

nb::object measured_costs() {
  const auto costs = load_costs(costs_file_of_environment());
  raise_unless_ok(costs.status());
  if (!costs.value()) return nb::none();
  nb::dict values;
  for (const HostCost& each : kHostCosts)
    values[nb::str(each.name.data(), each.name.size())] = (*costs.value()).*each.value;
  return values;
}

// Returns the path of the file.
std::string save_measured_costs(const std::map<std::string, std::uint64_t>& values) {
  HostCosts costs;
  for (const HostCost& each : kHostCosts) {
    const auto found = values.find(std::string(each.name));
    if (found != values.end()) costs.*each.value = found->second;
  }
  const CostsFile file = costs_file_of_environment();
  raise_unless_ok(save_costs(file, within_bounds(costs)));
  return file.path;
}

void set_simd_level(std::string_view name) {
  using kernels::SimdLevel;
  for (const SimdLevel level : {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
    if (kernels::to_string(level) == name) return kernels::set_simd_level(level);
  }
  raise_invalid_argument("there is no SIMD level \"" + std::string(name) + "\"");
}

nb::list examined_devices() {
  std::vector<ExaminedDevice> examined;
  {
    const nb::gil_scoped_release released;
    examined = examine_devices();
  }
  nb::list rows;
  for (const ExaminedDevice& each : examined) {
    rows.append(nb::make_tuple(each.name, each.works.message(), each.kernels.message()));
  }
  return rows;
}

nb::tuple row_of(const FoundNccl& found) { return nb::make_tuple(found.version, found.path, found.usable.message()); }

nb::tuple found_nccl(const std::string& named) { return row_of(find_nccl(named)); }

nb::object nccl_of_process() {
  const std::optional<FoundNccl> loaded = loaded_nccl();
  return loaded ? nb::object(row_of(*loaded)) : nb::none();
}

}  // namespace

void bind_tables(nb::module_& m) {
  m.attr("DATA_TYPES") = numbers_of(kDataTypes, &DataTypeInfo::dtype);
  m.attr("REDUCE_OPS") = numbers_of(kReduceOps, &ReduceOpInfo::op);
  m.attr("PAGE_LAYOUT") = page_layout();
  m.attr("COLLECTIVES") = numbers_of(kCollectives, &CollectiveInfo::collective);
  m.def("reduce_op_table", &reduce_op_table, "Every reduce op: its meaning, and the types that it accepts and scales.");
  m.def("collective_table", &collective_table, "Every collective that can be called, with its properties.");
  m.def("settings", &settings_table, "Every setting: its variable, Horovod's name for it, default, range, meaning.");
  m.def("launcher_variables", &launcher_variables_table,
        "The variables that show that another launcher has started several processes, and the launchers.");
  m.def("why_not_alone", &why_not_alone, nb::arg("environ"),
        "Why init() refuses to be a world of one in this environment; empty if it does not.");
  m.def("doubt_of_being_alone", &doubt_of_being_alone, nb::arg("environ"),
        "The warning of a world of one in this environment, if it may be the first of several; or empty.");
  m.def("host_costs_table", &host_costs_table,
        "The costs by which algorithms are chosen: each cost's default and bounds.");
  m.def("measured_costs", &measured_costs, "The costs measured on this host, or None. Raises for a broken file.");
  m.def("save_measured_costs", &save_measured_costs, nb::arg("values"),
        "Saves costs, within bounds. Returns the file's path.");
  m.def("effective_settings", &effective_settings, "The value that each setting has in this environment.");
  m.def("simd_level", [] { return kernels::to_string(kernels::active_simd_level()); });
  m.def("best_simd_level", [] { return kernels::to_string(kernels::best_simd_level()); });
  m.def("staging_copy", [] { return to_string(staging_choice().current()); });
  m.def("examine_devices", &examined_devices,
        "Opens and tries every device: its name, what is wrong (empty: nothing), and why it has no kernels.");
  m.def("find_nccl", &found_nccl, nb::arg("named"),
        "Opens the NCCL that would be used: its version, its file, and why it cannot be used (empty: it can).");
  m.def("n_captured_calls", &Engine::n_captured_calls, "Of this process, that are to be part of CUDA graphs.");
  m.def("loaded_nccl", &nccl_of_process, "The same of the NCCL that this process has loaded, or None.");
  m.def("set_simd_level", &set_simd_level, nb::arg("name"), "For tests; clamped to what this CPU can do.");
}

}  // namespace ciranda::python
