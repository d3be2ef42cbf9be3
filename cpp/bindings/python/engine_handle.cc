#include "bindings/python/engine_handle.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "base/checksum.hpp"
#include "base/other_launchers.hpp"
#include "base/pair_costs.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/loan.hpp"
#include "bindings/python/outputs.hpp"
#include "bindings/python/recording_handle.hpp"
#include "capi/callers.hpp"
#include "capi/kept_slot.hpp"
#include "capi/own_table.hpp"
#include "capi/worlds.hpp"
#include "ciranda/table.h"

namespace ciranda::python {

namespace {

// This rank's share of a tensor's rows, where the ranks of a process set share them; all of them if it is not in the
// set, which the engine refuses.
Share share_of(const Engine& engine, Collective collective, std::uint32_t process_set) {
  const Rows rows = info(collective).rows;
  if (rows != Rows::kCut && rows != Rows::kJoined) return {};
  const bool is_of_all = process_set == 0;
  if (is_of_all) return {engine.size(), engine.rank()};
  const std::vector<int> ranks = engine.ranks_of(process_set);
  const auto self = std::find(ranks.begin(), ranks.end(), engine.rank());
  if (self == ranks.end()) return {};
  return {static_cast<int>(ranks.size()), static_cast<int>(self - ranks.begin())};
}

}  // namespace

Session::Tensors EngineHandle::add_tensors(CallBuilder& builder, nb::handle inputs, nb::handle outputs) {
  const Call& call = builder.call;
  if (!info(call.collective).has_tensors) return {};
  const Share share = outputs.is_none() ? Share{} : share_of(engine(), call.collective, call.process_set);
  return builder.add_tensors(inputs, outputs, session_->reader(), share);
}

OperationHandle EngineHandle::handle_of(Engine::OperationPtr operation, const CallBuilder& builder,
                                        Session::Tensors kept) {
  if (operation->is_done() && operation->is_refused()) {
    if (builder.lacks_rows()) raise_as("ScalarError", operation->status());
    raise(operation->status());
  }
  OperationHandle handle(session_, std::move(operation), std::move(kept));
  handle.set_results(builder.output_dtypes(), builder.place(), builder.library());
  return handle;
}

nb::list EngineHandle::run(const Terms& terms, nb::handle inputs, nb::handle outputs, nb::handle name,
                           std::uint64_t set_and_lane, nb::handle splits, nb::handle weight) {
  session_->release_done();
  Loan<CallBuilder> builder(builder_);
  builder->begin(terms, set_and_lane);
  builder->set_name(name);
  builder->set_splits(splits);
  builder->call.weight = read_weight(weight);
  Session::Tensors kept = add_tensors(*builder, inputs, outputs);
  Engine::OperationPtr operation = session_->engine()->run(builder->call);
  if (operation == nullptr) return {};
  OperationHandle handle = handle_of(std::move(operation), *builder, std::move(kept));
  handle.wait();
  return handle.outputs();
}

OperationHandle EngineHandle::submit(const Terms& terms, nb::handle inputs, nb::handle outputs, nb::handle name,
                                     std::uint64_t set_and_lane, nb::handle splits, nb::handle weight,
                                     nb::handle priority, std::uint32_t how) {
  session_->release_done();
  Loan<CallBuilder> builder(builder_);
  builder->begin(terms, set_and_lane);
  builder->set_name(name);
  builder->set_splits(splits);
  Call& call = builder->call;
  if ((how & kNumbered) != 0) call.is_cacheable = false;
  call.hints.is_deferrable = (how & kDeferrable) != 0;
  call.hints.is_awaited = (how & (kAwaited | kEarly)) != 0;
  call.hints.is_early = (how & kEarly) != 0;
  call.weight = read_weight(weight);
  call.priority = read_priority(priority);
  Session::Tensors kept = add_tensors(*builder, inputs, outputs);
  return handle_of(session_->engine()->submit(call), *builder, std::move(kept));
}

OperationHandle EngineHandle::submit_bare(int collective, const std::vector<std::int64_t>& arguments,
                                          std::uint64_t set_and_lane) {
  session_->release_done();
  CallBuilder builder;
  builder.begin({collective_of(collective)}, set_and_lane);
  builder.call.arguments = arguments;
  return handle_of(session_->engine()->submit(builder.call), builder, {});
}

OperationHandle EngineHandle::submit_prepared(PreparedCall& prepared, nb::handle tensors, std::optional<double> weight,
                                              bool is_early) {
  session_->release_done();
  Loan<CallBuilder> builder(builder_);
  builder->begin(prepared.terms, prepared.set_and_lane);
  Call& call = builder->call;
  call.name = prepared.name;
  call.is_cacheable = true;
  call.priority = prepared.priority;
  call.hints = {.is_deferrable = !is_early, .is_awaited = is_early, .is_early = is_early};
  call.weight = weight;
  if (weight) call.divides_by_all = false;
  Session::Tensors kept = add_tensors(*builder, tensors, tensors);
  return handle_of(session_->engine()->submit(call, nullptr, &prepared.handle), *builder, std::move(kept));
}

namespace {

// Throws InvalidArgumentError unless `n_lanes` is in the range of the setting num_lanes.
void set_lanes(Config& config, std::int64_t n_lanes) {
  const auto all = settings();
  const auto row =
      std::find_if(all.begin(), all.end(), [](const Setting& s) { return s.integer == &Config::num_lanes; });
  if (static_cast<double>(n_lanes) < row->lowest || static_cast<double>(n_lanes) > row->highest) {
    raise_invalid_argument("num_lanes must be between " + std::to_string(static_cast<std::int64_t>(row->lowest)) +
                           " and " + std::to_string(static_cast<std::int64_t>(row->highest)) + ", not " +
                           std::to_string(n_lanes));
  }
  config.num_lanes = n_lanes;
}

// The given slot, which comes from another launcher's variables; otherwise that of the engine's own variables.
std::string own_slot(const std::optional<std::string>& slot) { return slot ? *slot : capi::slot_of(environment()); }

// gives_up_wait(), and what the caller asks besides. The callable outlives the wait; it must not raise.
Engine::Interrupted gives_up_wait_or(const std::optional<nb::callable>& interrupted) {
  if (!interrupted) return &gives_up_wait;
  return [&interrupted] {
    if (gives_up_wait()) return true;
    const nb::gil_scoped_acquire acquired;
    return nb::cast<bool>((*interrupted)());
  };
}

EngineHandle connect_from_environment(std::uint64_t epoch, std::optional<std::int64_t> n_lanes,
                                      const std::map<std::string, std::string>& told,
                                      const std::optional<std::string>& slot,
                                      const std::optional<nb::callable>& interrupted) {
  const GetEnv get_env = environment_behind({told.begin(), told.end()});
  Result<Config> config = read_config(get_env);
  raise_unless_ok(config.status());
  raise_unless_ok(refuse_one_by_accident(get_env));
  if (n_lanes) set_lanes(config.value(), *n_lanes);
  auto connected = [&] {
    const GilReleased released;
    return capi::join_world(std::move(config).value(), epoch, own_slot(slot), gives_up_wait_or(interrupted));
  }();
  if (!PyErr_Occurred()) {
    raise_unless_ok(connected.status());
    return EngineHandle(std::make_shared<Session>(*connected.value()));
  }
  if (connected.ok()) capi::leave(*connected.value());
  throw nb::python_error();
}

// The world that C or C++ has joined in this process, if any.
std::optional<EngineHandle> attach() {
  ciranda_context* const context = capi::current();
  if (context == nullptr) return std::nullopt;
  return EngineHandle(std::make_shared<Session>(*context));
}

nb::list candidates(const EngineHandle& self, int collective, std::size_t n_bytes) {
  nb::list rows;
  for (const Candidate& each : self.engine().candidates(static_cast<Collective>(collective), n_bytes)) {
    const auto number = [](std::optional<double> us) { return us ? nb::object(nb::float_(*us)) : nb::none(); };
    rows.append(nb::make_tuple(each.name, each.segment_bytes, number(each.expected_us), number(each.taken_us),
                               each.is_chosen, each.is_in_place));
  }
  return rows;
}

std::uint64_t checksum_of(EngineHandle& self, nb::handle tensor) {
  TensorSignature signature;
  const TensorView view = self.session().reader().read(tensor, Access::kRead, signature);
  if (!view.place.is_host()) {
    raise_invalid_argument("the tensor is " + to_string(view.place) + ": only one in CPU memory has a checksum");
  }
  return checksum({view.address, signature.n_bytes()});
}

// Returns an array of bytes, of the library of `like`, and whether it is shared.
nb::tuple allocate_shared(EngineHandle& self, std::size_t n_bytes, nb::handle like) {
  TensorSignature ignored;
  const TensorLibrary library = self.session().reader().read(like, Access::kRead, ignored).library;
  const std::shared_ptr<Engine> engine = self.session().engine();
  auto allocated = [&] {
    const GilReleased released;
    return engine->allocate_shared(n_bytes, &gives_up_wait);
  }();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  raise_unless_ok(allocated.status());
  const SharedAllocation& allocation = allocated.value();
  return nb::make_tuple(wrap_output(allocation.buffer, DataType::kUInt8, library), allocation.is_shared);
}

void start_timeline(EngineHandle& self, const std::string& path, bool marks_cycles) {
  raise_unless_ok(self.session().engine()->start_timeline(path, marks_cycles));
}

void stop_timeline(EngineHandle& self) {
  const std::shared_ptr<Engine> engine = self.session().engine();
  const GilReleased released;
  engine->stop_timeline();
}

// The first start makes room for many records; the end waits until the file is complete.
void start_records(EngineHandle& self, const std::string& path) {
  const std::shared_ptr<Engine> engine = self.session().engine();
  const GilReleased released;
  engine->start_records(path);
}

void stop_records(EngineHandle& self) {
  const std::shared_ptr<Engine> engine = self.session().engine();
  const GilReleased released;
  engine->stop_records();
}

void await_results(EngineHandle& self) {
  const std::shared_ptr<Engine> engine = self.session().engine();
  const Status status = [&] {
    const GilReleased released;
    return engine->await_results(&gives_up_wait);
  }();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  raise_unless_ok(status);
}

// The rate in GB/s, given the time of a byte in fs.
double rate_of(std::uint64_t fs) { return 1e6 / static_cast<double>(std::max<std::uint64_t>(fs, 1)); }

nb::dict pair_costs(const PairCosts& costs) {
  nb::dict fields;
  fields["line_ns"] = costs.line_ns;
  fields["distance"] = to_string(distance_of(static_cast<double>(costs.line_ns)));
  nb::dict rates;
  for (std::size_t i = 0; i < kStagingCopies.size(); ++i) {
    rates[nb::str(kStagingCopies[i].data(), kStagingCopies[i].size())] = rate_of(costs.hand_over_fs[i]);
  }
  fields["hand_over_gb_per_s"] = std::move(rates);
  fields["read_gb_per_s"] = rate_of(costs.read_fs);
  return fields;
}

nb::dict peer(const EngineHandle& self, int rank) {
  const std::shared_ptr<Engine> engine = self.session().engine();  // creating the fields may run Python code
  if (rank < 0 || rank >= engine->size()) {
    raise_invalid_argument("there is no rank " + std::to_string(rank) + " among " + std::to_string(engine->size()));
  }
  const PeerInfo& info = engine->peer(rank);
  nb::dict fields;
  fields["rank"] = info.rank;
  fields["pid"] = info.pid;
  fields["host"] = info.host;
  fields["address"] = info.address;
  fields["shares_memory"] = info.shares_memory;
  fields["pair"] = info.pair ? nb::object(pair_costs(*info.pair)) : nb::none();
  return fields;
}

void bind_prepared_call(nb::module_& m) {
  nb::class_<PreparedCall>(m, "PreparedCall", "A named call that is made again and again with fresh tensors.")
      .def(
          "__init__",
          [](PreparedCall* self, std::string name, const Terms& terms, std::uint64_t set_and_lane,
             nb::handle priority) {
            new (self) PreparedCall{std::move(name), terms, set_and_lane, read_priority(priority), {}};
          },
          nb::arg("name"), nb::arg("terms"), nb::arg("process_set") = 0, nb::arg("priority") = 0)
      .def_ro("name", &PreparedCall::name);
}

}  // namespace

void bind_engine_handle(nb::module_& m) {
  bind_terms(m);
  bind_prepared_call(m);
  m.attr("DEFERRABLE") = EngineHandle::kDeferrable;
  m.attr("AWAITED") = EngineHandle::kAwaited;
  m.attr("EARLY") = EngineHandle::kEarly;
  m.attr("NUMBERED") = EngineHandle::kNumbered;
  nb::class_<EngineHandle>(m, "Engine", "A connected engine.")
      .def_prop_ro("rank", [](const EngineHandle& self) { return self.engine().rank(); })
      .def_prop_ro("size", [](const EngineHandle& self) { return self.engine().size(); })
      .def_prop_ro("local_rank", [](const EngineHandle& self) { return self.session().config().local_rank; })
      .def_prop_ro("local_size", [](const EngineHandle& self) { return self.session().config().local_size; })
      .def_prop_ro("cross_rank", [](const EngineHandle& self) { return self.session().config().cross_rank; })
      .def_prop_ro("cross_size", [](const EngineHandle& self) { return self.session().config().cross_size; })
      .def_prop_ro("num_lanes", [](const EngineHandle& self) { return self.session().config().num_lanes; })
      .def_prop_ro("kept_slot", [](const EngineHandle& self) { return self.session().kept_slot(); })
      .def_prop_ro("is_open", [](const EngineHandle& self) { return self.session().is_open(); })
      .def_prop_ro("has_failed", [](const EngineHandle& self) { return self.engine().has_failed(); })
      .def_prop_ro("shares_memory_with_all",
                   [](const EngineHandle& self) { return self.engine().shares_memory_with_all(); })
      .def("peer", &peer, nb::arg("rank"))
      .def("checksum", &checksum_of, nb::arg("tensor"), "A checksum of the tensor's bytes.")
      .def("allocate_shared", &allocate_shared, nb::arg("n_bytes"), nb::arg("like"),
           "A collective of all ranks: zeroed bytes that are combined where they lie, and whether they are shared.")
      .def_prop_ro("n_bytes_in_place", [](const EngineHandle& self) { return self.engine().n_bytes_in_place(); })
      .def(
          "candidates", &candidates, nb::arg("collective"), nb::arg("n_bytes"),
          "How the world could carry it out: (name, segment bytes, expected and taken microseconds or None, whether it "
          "is chosen, whether it is for tensors in shared memory) of each.")
      .def(
          "agreement",
          [](const EngineHandle& self, int collective, std::size_t n_bytes) {
            return self.engine().agreement(static_cast<Collective>(collective), n_bytes);
          },
          nb::arg("collective"), nb::arg("n_bytes"),
          "How the world agrees on such a blocking call that is made again, of which a rank contributes n_bytes; empty "
          "on ranks other than the lowest.")
      .def("await_results", &await_results,
           "Returns when the results of all calls that are done are there; raises what made one of them void.")
      .def("shutdown", [](EngineHandle& self) { self.session().shutdown(); })
      .def("abandon", [](EngineHandle& self) { self.session().abandon(); })
      .def("submit", &EngineHandle::submit, nb::arg("terms"), nb::arg("inputs").none(), nb::arg("outputs").none(),
           nb::arg("name").none(), nb::arg("process_set") = 0, nb::arg("splits") = nb::none(),
           nb::arg("weight") = nb::none(), nb::arg("priority") = 0, nb::arg("how") = EngineHandle::kDeferrable)
      .def("run", &EngineHandle::run, nb::arg("terms"), nb::arg("inputs").none(), nb::arg("outputs").none(),
           nb::arg("name").none(), nb::arg("process_set") = 0, nb::arg("splits") = nb::none(),
           nb::arg("weight") = nb::none())
      .def(
          "record", [](const EngineHandle& self) { return RecordingHandle(self.engine().record()); },
          "What this rank's calls do from here on.")
      .def(
          "count_step", [](const EngineHandle& self) { self.session().engine()->count_step(); },
          "Counts a step of the training.")
      .def(
          "counter_page",
          [](const EngineHandle& self) {
            const CounterPage& page = self.engine().counter_page();
            return nb::bytes(&page, sizeof page);
          },
          "The page of this rank's counters, as its agent reads it.")
      .def("start_timeline", &start_timeline, nb::arg("path"), nb::arg("marks_cycles"),
           "Writes the calls of rank 0 to a file; does nothing on others.")
      .def("stop_timeline", &stop_timeline, "Completes the file, if there is one.")
      .def("start_records", &start_records, nb::arg("path"),
           "Appends this rank's calls to a file of the launcher's; does nothing if it does so already.")
      .def("stop_records", &stop_records, "Completes that file, if there is one.")
      .def("submit_bare", &EngineHandle::submit_bare, nb::arg("collective"), nb::arg("arguments"),
           nb::arg("process_set") = 0)
      .def(
          "ranks_of", [](const EngineHandle& self, std::uint32_t id) { return self.engine().ranks_of(id); },
          nb::arg("process_set"), "The ranks of a process set, ascending; none if there is no such set.")
      .def(
          "pair_with", [](const EngineHandle& self, int rank) { return self.engine().pair_with(rank); },
          nb::arg("rank"), "The process set of this rank and another; 0 if there is no such other rank.")
      .def(
          "form_set",
          [](EngineHandle& self, std::vector<int> ranks, std::uint32_t nth) {
            Result<std::uint32_t> id = self.session().engine()->form_set(std::move(ranks), nth);
            raise_unless_ok(id.status());
            return id.value();
          },
          nb::arg("ranks"), nb::arg("nth"),
          "Makes a process set on its own ranks only; `nth` is the same on all and new to the first.")
      .def("submit_prepared", &EngineHandle::submit_prepared, nb::arg("prepared"), nb::arg("tensors"),
           nb::arg("weight") = nb::none(), nb::arg("is_early") = false);
  m.def("connect", &connect_from_environment, nb::arg("epoch"), nb::arg("num_lanes") = nb::none(),
        nb::arg("told") = std::map<std::string, std::string>(), nb::arg("slot") = nb::none(),
        nb::arg("interrupted") = nb::none(),
        "Joins the world that the environment describes and starts the engine. `told`: variables that count more. "
        "`slot`: what tells this rank's slot from all others, if the engine's variables do not describe it. "
        "`interrupted`: asked several times a second during the wait; if it returns true, AbortedError.");
  m.def(
      "why_taken", [](const std::optional<std::string>& slot) { return capi::why_taken(own_slot(slot)); },
      nb::arg("slot").none(), "Why another process keeps this one's slot (as of connect); empty if none does.");
  m.def("attach", &attach, "The world that this process is in already, which C or C++ has joined; None without one.");
  m.def("next_epoch", &capi::next_epoch, "The number after the highest of the worlds that this process has tried.");
  m.def(
      "table_address",
      [] {
        capi::note_native_callers();
        return reinterpret_cast<std::uintptr_t>(&capi::own_table());
      },
      "Where the functions of the C ABI are: a ciranda_table of ciranda/table.h.");
  m.attr("TABLE") =
      nb::steal(PyCapsule_New(const_cast<ciranda_table*>(&capi::own_table()), CIRANDA_TABLE_CAPSULE, nullptr));
}

}  // namespace ciranda::python
