#include "membership/chosen_interfaces.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {
namespace {

SocketAddress choose_address(const StoreClient& store) {
  const SocketAddress reached_from = store.local_address();
  if (!reached_from.is_loopback()) return reached_from;
  // The store is on this host. If it has other addresses too, ranks elsewhere come by them, and to us as well.
  const auto interfaces = interface_addresses();
  for (const SocketAddress& candidate : store.candidates()) {
    const bool is_ours = std::any_of(interfaces.begin(), interfaces.end(), [&candidate](const InterfaceAddress& each) {
      return each.address.same_ip(candidate);
    });
    if (!candidate.is_loopback() && is_ours) return candidate;
  }
  return reached_from;
}

}  // namespace

Result<std::vector<InterfaceAddress>> choose_interfaces(const std::vector<std::string>& names,
                                                        const StoreClient& store) {
  std::vector<InterfaceAddress> chosen;
  for (const std::string& name : names) {
    auto found = find_interface(name, store.local_address().family());
    if (!found.ok()) return found.status();
    chosen.push_back(std::move(found).value());
  }
  if (chosen.empty()) chosen.push_back({"", choose_address(store)});
  return chosen;
}

}  // namespace ciranda
