#include "membership/store_server.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/bindings.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "membership/secret.hpp"

namespace ciranda::python {

namespace nb = nanobind;

namespace {

class StoreHandle {
 public:
  explicit StoreHandle(StoreServerOptions options) {
    auto started = [&] {
      const GilReleased released;
      return StoreServer::start(std::move(options));
    }();
    raise_unless_ok(started.status());
    server_ = std::move(started).value();
  }

  int port() const { return server_->port(); }

  void lose(std::uint32_t rank, std::string why) { server_->lose(rank, std::move(why)); }

  void close() {
    const GilReleased released;
    server_->close();
  }

 private:
  std::unique_ptr<StoreServer> server_;
};

StoreServerOptions options_of(std::vector<std::string> bind, int port, const std::string& secret, int size,
                              std::string job) {
  const Result<Secret> parsed = parse_secret(secret);
  raise_unless_ok(parsed.status());
  StoreServerOptions options;
  options.bind = std::move(bind);
  options.port_range = port == 0 ? "" : std::to_string(port);
  options.secret = parsed.value();
  options.size = size;
  options.job = std::move(job);
  return options;
}

}  // namespace

void bind_store_server(nb::module_& m) {
  nb::class_<StoreHandle>(m, "StoreServer", "The rendezvous store through which the ranks of a job connect.")
      .def(
          "__init__",
          [](StoreHandle* self, std::vector<std::string> bind, int port, const std::string& secret, int size,
             std::string job) {
            new (self) StoreHandle(options_of(std::move(bind), port, secret, size, std::move(job)));
          },
          nb::arg("bind"), nb::arg("port"), nb::arg("secret"), nb::arg("size"), nb::arg("job"))
      .def_prop_ro("port", &StoreHandle::port)
      .def("lose", &StoreHandle::lose, nb::arg("rank"), nb::arg("why"))
      .def("close", &StoreHandle::close);
}

}  // namespace ciranda::python
