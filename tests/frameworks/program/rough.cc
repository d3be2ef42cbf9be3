// Callbacks that do what a framework may do in them, or a user's code behind a collective: throw, wait for something
// else, for other collectives, leave the world, end the process.
#include <ciranda/native/call.hpp>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <utility>

CIRANDA_DEFINE_TABLE

namespace {

namespace native = ciranda::native;

enum What : std::int32_t { kThrow, kWaitForRelease, kWaitForAnother, kLeave, kExit };

std::counting_semaphore<> released(0);

ciranda_request sum_of(const ciranda_tensor& tensor, const std::string& name) {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.name = name.c_str();
  request.tensors = &tensor;
  request.tensors_count = 1;
  return request;
}

struct Rough {
  Rough(What what_to_do, std::string its_name) : what(what_to_do), name(std::move(its_name)) {}

  What what;
  std::string name;
  double value = 1;

  ciranda_tensor tensor() { return {&value, &value, nullptr, 0, CIRANDA_FLOAT64, nullptr, 0, 0, 0, nullptr}; }

  void end(const native::Outcome&) {
    if (what == kThrow) throw std::runtime_error("rough: " + name);
    if (what == kWaitForRelease) released.acquire();
    if (what == kWaitForAnother) sum_again();
    if (what == kLeave) {
      ciranda_context* context = ciranda_current();  // a reference, which ciranda_shutdown() gives back
      ciranda_shutdown(context);
    }
    if (what == kExit) std::exit(7);
  }

  void sum_again() {
    const native::Context context;
    const ciranda_tensor again = tensor();
    const std::string inner = name + ".inner";
    const ciranda_request request = sum_of(again, inner);
    if (ciranda_run(context.get(), &request, nullptr) != CIRANDA_OK) throw std::runtime_error("rough: it did not work");
  }
};

}  // namespace

extern "C" {

int rough_start(const ciranda_table* table) { return ciranda_use_table(table, nullptr, 0); }

void rough_submit(std::int32_t what, const char* name) {
  auto rough = std::make_unique<Rough>(static_cast<What>(what), name);
  const ciranda_tensor tensor = rough->tensor();
  const std::string kept = name;
  native::submit(std::move(rough), sum_of(tensor, kept));
}

void rough_release(void) { released.release(); }

std::int64_t rough_live(void) { return native::live_calls(); }

std::int64_t rough_thrown(void) { return native::counts.thrown; }
}
