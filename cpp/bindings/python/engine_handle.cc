#include "bindings/python/engine_handle.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "base/checksum.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/outputs.hpp"
#include "engine/connect.hpp"

namespace ciranda::python {

namespace {

using Name = std::optional<std::string>;

// Of what the engine allocates.
std::vector<DataType> output_dtypes_of(const Signature& signature) {
  const CollectiveInfo& row = info(signature.collective);
  std::vector<DataType> dtypes;
  if (!row.allocates_output) return dtypes;
  for (const TensorSignature& tensor : signature.tensors) dtypes.push_back(tensor.dtype);
  const bool has_received_splits = row.takes_splits && !row.has_root;
  if (has_received_splits) dtypes.resize(2 * dtypes.size(), DataType::kInt64);
  return dtypes;
}

// This rank's share of what the ranks of a process set share. All, where it is in no such set: the engine refuses that.
Share share_of(const Engine& engine, std::uint32_t process_set) {
  const std::vector<int> ranks = engine.ranks_of(process_set);
  const auto self = std::find(ranks.begin(), ranks.end(), engine.rank());
  if (self == ranks.end()) return {};
  return {static_cast<int>(ranks.size()), static_cast<int>(self - ranks.begin())};
}

// Whether a tensor that is to be cut or joined along its first dimension has none.
bool lacks_rows(Collective collective, const TensorSignature& tensor) {
  return info(collective).is_along_rows && tensor.shape.empty();
}
bool lacks_rows(const Signature& signature) {
  return std::any_of(signature.tensors.begin(), signature.tensors.end(),
                     [&](const TensorSignature& tensor) { return lacks_rows(signature.collective, tensor); });
}

// Of a call: the engine gives memory for the result where the caller has none.
bool may_allocate(Collective collective) {
  return collective == Collective::kAllgather || collective == Collective::kReducescatter;
}

bool may_be_call(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kBroadcast ||
         collective == Collective::kAlltoall || may_allocate(collective);
}

}  // namespace

OperationHandle EngineHandle::submit_request(Request request, Session::Tensors tensors) {
  std::vector<DataType> output_dtypes = output_dtypes_of(request.signature);
  const bool is_scalar = lacks_rows(request.signature);
  session_->release_done();
  Engine::OperationPtr operation = session_->engine()->submit(std::move(request));
  if (operation->is_done() && operation->is_refused()) {
    if (is_scalar) raise_as("ScalarError", operation->status());
    raise(operation->status());
  }
  OperationHandle handle(session_, std::move(operation), std::move(tensors));
  handle.set_output_types(std::move(output_dtypes), session_->reader().last_table());
  return handle;
}

OperationHandle EngineHandle::submit(const CallOptions& options, nb::handle inputs, nb::handle outputs) {
  Request request = make_request(options);
  Session::Tensors tensors;
  if (info(request.signature.collective).has_tensors) {
    const Collective collective = request.signature.collective;
    const bool is_shared = collective == Collective::kReducescatter || collective == Collective::kAllgather;
    const Share share = is_shared && !outputs.is_none() ? share_of(engine(), request.process_set) : Share{};
    tensors = attach_tensors(request, inputs, outputs, session_->reader(), share);
  }
  return submit_request(std::move(request), std::move(tensors));
}

std::optional<Call> EngineHandle::as_call(const CallOptions& options, nb::handle inputs, nb::handle outputs) {
  if (!std::in_range<std::uint8_t>(options.collective)) return std::nullopt;
  const auto collective = static_cast<Collective>(options.collective);
  const auto op = std::in_range<std::uint8_t>(options.op) ? reduce_op_from_wire(static_cast<std::uint8_t>(options.op))
                                                          : std::nullopt;
  if (!may_be_call(collective) || !options.name || !op || is_group(inputs) || !options.splits.empty() ||
      options.weight || options.process_set != 0 || options.lane != 0 || options.needs_all ||
      (outputs.is_none() && !may_allocate(collective)) || (outputs.is(inputs) && may_allocate(collective))) {
    return std::nullopt;
  }
  Call call{.name = *options.name, .collective = collective};
  if (info(collective).is_reduction) {
    call.op = *op;
    call.prescale = options.prescale;
    call.postscale = options.postscale;
    call.divides_by_all = options.divides_by_all;
  }
  if (info(collective).has_root) call.root = options.root;
  call.priority = options.priority;
  return read_tensors(call, inputs, outputs) ? std::optional(call) : std::nullopt;
}

// False if they do not fit; whoever submits the call says why.
bool EngineHandle::read_tensors(Call& call, nb::handle inputs, nb::handle outputs) {
  TensorReader& reader = session_->reader();
  const bool is_in_place = outputs.is(inputs);
  const bool has_output = !outputs.is_none() && !is_in_place;
  if (has_output) call.memory.output = reader.read(outputs, Access::kWrite, repeated_output_);
  std::byte* input = reader.read(inputs, is_in_place ? Access::kWrite : Access::kRead, repeated_);
  call.memory.input = input;
  if (is_in_place) call.memory.output = input;
  const bool lacks_memory = input == nullptr || (call.memory.output == nullptr && !outputs.is_none());
  if (lacks_memory || lacks_rows(call.collective, repeated_)) return false;
  call.dtype = repeated_.dtype;
  call.shape = repeated_.shape;
  return !has_output || repeated_output_ == result_of(repeated_, call.collective, {engine().size(), engine().rank()});
}

std::optional<Engine::OperationPtr> EngineHandle::repeat(const CallOptions& options, nb::handle inputs,
                                                         nb::handle outputs, Moments* moments) {
  const std::optional<Call> call = as_call(options, inputs, outputs);
  if (!call) return std::nullopt;
  session_->release_done();
  return session_->engine()->repeat(*call, moments);
}

OperationHandle EngineHandle::handle_of(Engine::OperationPtr operation, Collective collective, nb::handle inputs,
                                        nb::handle outputs) {
  OperationHandle handle(session_, std::move(operation), {nb::borrow(inputs), nb::borrow(outputs)});
  if (may_allocate(collective)) handle.set_output_types({repeated_.dtype}, session_->reader().last_table());
  return handle;
}

OperationHandle EngineHandle::submit_prepared(const PreparedRequest& prepared, nb::handle tensors,
                                              std::optional<double> weight) {
  Request request = prepared.prototype;
  if (weight) {
    request.weight = *weight;
    request.signature.is_weighted = true;
    request.signature.divides_by_all = false;
  }
  Session::Tensors kept = attach_tensors(request, tensors, tensors, session_->reader());
  return submit_request(std::move(request), std::move(kept));
}

namespace {

// Throws InvalidArgumentError unless `n_lanes` is in the range of the setting that it stands for.
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

EngineHandle connect_from_environment(std::uint64_t epoch, std::optional<std::int64_t> n_lanes) {
  Result<Config> config = read_config();
  raise_unless_ok(config.status());
  if (n_lanes) set_lanes(config.value(), *n_lanes);
  auto connected = [&] {
    const nb::gil_scoped_release released;
    return connect(config.value(), epoch, &signal_handler_raised);
  }();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  raise_unless_ok(connected.status());
  return EngineHandle(std::make_shared<Session>(std::move(config).value(), std::move(connected).value()));
}

// Submits and waits: a blocking call without the cost of a handle.
nb::list run(EngineHandle& self, int collective, nb::handle inputs, nb::handle outputs, Name name, int op, int root,
             double prescale, double postscale, nb::handle splits, std::uint64_t place, std::optional<double> weight,
             bool divides_by_all) {
  CallOptions options{collective, std::move(name), op, root, prescale, postscale, false, true, read_splits(splits)};
  options.set_place(place);
  options.weight = weight;
  options.divides_by_all = divides_by_all;
  options.is_profiled = self.profile().is_kept();
  Moments moments;
  const auto repeated = self.repeat(options, inputs, outputs, options.is_profiled ? &moments : nullptr);
  if (repeated && *repeated == nullptr) {
    if (options.is_profiled) self.profile().add(moments);
    return {};
  }
  OperationHandle handle = repeated ? self.handle_of(*repeated, static_cast<Collective>(collective), inputs, outputs)
                                    : self.submit(options, inputs, outputs);
  handle.wait();
  if (handle.moments() != nullptr) self.profile().add(*handle.moments());
  return handle.outputs();
}

OperationHandle submit(EngineHandle& self, int collective, nb::handle inputs, nb::handle outputs, Name name, int op,
                       int root, double prescale, double postscale, bool is_deferrable, nb::handle splits,
                       std::uint64_t place, std::optional<double> weight, bool divides_by_all, std::int32_t priority) {
  CallOptions options{collective, std::move(name),    op, root, prescale, postscale, is_deferrable,
                      false,      read_splits(splits)};
  options.set_place(place);
  options.weight = weight;
  options.divides_by_all = divides_by_all;
  options.priority = priority;
  return self.submit(options, inputs, outputs);
}

// A collective without tensors, about process sets or about who takes part.
OperationHandle submit_bare(EngineHandle& self, int collective, std::vector<std::int64_t> arguments,
                            std::uint64_t place) {
  CallOptions options;
  options.collective = collective;
  options.set_place(place);
  options.arguments = std::move(arguments);
  return self.submit(options, nb::none(), nb::none());
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
  const std::byte* bytes = self.session().reader().read(tensor, Access::kRead, signature);
  return checksum({bytes, signature.n_bytes()});
}

// Of bytes, as the library that `like` belongs to has them.
nb::tuple allocate_shared(EngineHandle& self, std::size_t n_bytes, nb::handle like) {
  TensorSignature ignored;
  static_cast<void>(self.session().reader().read(like, Access::kRead, ignored));
  const dlpack::ExchangeTable* table = self.session().reader().last_table();
  const std::shared_ptr<Engine> engine = self.session().engine();
  auto allocated = [&] {
    const nb::gil_scoped_release released;
    return engine->allocate_shared(n_bytes, &signal_handler_raised);
  }();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  raise_unless_ok(allocated.status());
  const SharedAllocation& allocation = allocated.value();
  return nb::make_tuple(wrap_output(allocation.buffer, DataType::kUInt8, table), allocation.is_shared);
}

nb::dict peer(const EngineHandle& self, int rank) {
  const Engine& engine = self.engine();
  if (rank < 0 || rank >= engine.size()) {
    raise_invalid_argument("there is no rank " + std::to_string(rank) + " among " + std::to_string(engine.size()));
  }
  const PeerInfo& info = engine.peer(rank);
  nb::dict fields;
  fields["rank"] = info.rank;
  fields["pid"] = info.pid;
  fields["host"] = info.host;
  fields["address"] = info.address;
  fields["shares_memory"] = info.shares_memory;
  return fields;
}

void bind_prepared_request(nb::module_& m) {
  nb::class_<PreparedRequest>(m, "PreparedRequest",
                              "A named, in-place allreduce that is submitted again and again with fresh tensors.")
      .def(
          "__init__",
          [](PreparedRequest* self, std::string name, int op, double prescale, double postscale, std::uint64_t place,
             bool divides_by_all, std::int32_t priority) {
            const int allreduce = static_cast<int>(Collective::kAllreduce);
            CallOptions options{allreduce, std::move(name), op, -1, prescale, postscale, true};
            options.set_place(place);
            options.divides_by_all = divides_by_all;
            options.priority = priority;
            new (self) PreparedRequest{make_request(options)};
          },
          nb::arg("name"), nb::arg("op"), nb::arg("prescale") = 1.0, nb::arg("postscale") = 1.0,
          nb::arg("process_set") = 0, nb::arg("divides_by_all") = false, nb::arg("priority") = 0)
      .def_prop_ro("name", [](const PreparedRequest& self) { return self.prototype.name; });
}

}  // namespace

void bind_engine_handle(nb::module_& m) {
  bind_prepared_request(m);
  nb::class_<EngineHandle>(m, "Engine", "A connected engine.")
      .def_prop_ro("rank", [](const EngineHandle& self) { return self.engine().rank(); })
      .def_prop_ro("size", [](const EngineHandle& self) { return self.engine().size(); })
      .def_prop_ro("local_rank", [](const EngineHandle& self) { return self.session().config().local_rank; })
      .def_prop_ro("local_size", [](const EngineHandle& self) { return self.session().config().local_size; })
      .def_prop_ro("cross_rank", [](const EngineHandle& self) { return self.session().config().cross_rank; })
      .def_prop_ro("cross_size", [](const EngineHandle& self) { return self.session().config().cross_size; })
      .def_prop_ro("num_lanes", [](const EngineHandle& self) { return self.session().config().num_lanes; })
      .def_prop_ro("is_open", [](const EngineHandle& self) { return self.session().is_open(); })
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
          "is chosen) of each.")
      .def("shutdown", [](EngineHandle& self) { self.session().shutdown(); })
      .def("abandon", [](EngineHandle& self) { self.session().abandon(); })
      .def("submit", &submit, nb::arg("collective"), nb::arg("inputs").none(), nb::arg("outputs").none(),
           nb::arg("name").none(), nb::arg("op"), nb::arg("root"), nb::arg("prescale"), nb::arg("postscale"),
           nb::arg("is_deferrable"), nb::arg("splits") = nb::none(), nb::arg("process_set") = 0,
           nb::arg("weight") = nb::none(), nb::arg("divides_by_all") = false, nb::arg("priority") = 0)
      .def("run", &run, nb::arg("collective"), nb::arg("inputs").none(), nb::arg("outputs").none(),
           nb::arg("name").none(), nb::arg("op"), nb::arg("root"), nb::arg("prescale"), nb::arg("postscale"),
           nb::arg("splits") = nb::none(), nb::arg("process_set") = 0, nb::arg("weight") = nb::none(),
           nb::arg("divides_by_all") = false)
      .def(
          "start_profile", [](EngineHandle& self) { self.profile().keep(); }, "From here on run() keeps moments.")
      .def(
          "take_profile", [](EngineHandle& self) { return self.profile().take(); },
          "Of each run() since: when it was submitted, taken in, ready, agreed on, done, and back, on the clock of "
          "time.monotonic_ns(). Keeps no more.")
      .def("submit_bare", &submit_bare, nb::arg("collective"), nb::arg("arguments"), nb::arg("process_set") = 0)
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
           nb::arg("weight") = nb::none());
  m.def("connect", &connect_from_environment, nb::arg("epoch"), nb::arg("num_lanes") = nb::none(),
        "Joins the circle that the environment describes and starts the engine.");
}

}  // namespace ciranda::python
