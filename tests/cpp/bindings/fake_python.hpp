// What libciranda_mpi.so asks of Python: the functions of its stable interface, which it finds in the program, and the
// answer of `ciranda._jax_native.join()`.
#pragma once

#include <functional>
#include <string>
#include <variant>

namespace ciranda::fake_python {

struct Raises {};  // an exception
using Answer = std::variant<const void*, std::string, Raises>;

// What join() does from now on.
void on_join(std::function<Answer()> join);

// References that were taken and not given back; exceptions that are still set; how often the lock is held.
int references_left();
bool is_raised();
int locks_held();

}  // namespace ciranda::fake_python
